#include "config.hpp"

#include <CLI/CLI.hpp>
#include <dptk/core/detail/suggestion.hpp>
#include <dptk/core/error.hpp>

#ifdef DPTK_WITH_CUDNN
#include <dptk/core/cuda/device.hpp>
#endif
#ifdef DPTK_WITH_YAML
#include <yaml-cpp/yaml.h>
#endif

#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <regex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base_trainer.hpp"

namespace {

using Kind = ConfigEntry::Kind;

constexpr std::string_view prefix = "DPTK_TRAIN_";

/// These are no settings of a run.
bool is_setting(const std::string& name) {
    return name != "help" && name != "config" && name != "print-config";
}

bool is_flag(const CLI::Option& option) {
    return option.get_items_expected_max() == 0;
}

bool is_list(const CLI::Option& option) {
    return option.get_items_expected_max() > 1;
}

const CLI::Option* find_option(const CLI::App& app, const std::string& name) {
    return is_setting(name) ? app.get_option_no_throw("--" + name) : nullptr;
}

std::string dashed(std::string name) {
    std::replace(name.begin(), name.end(), '_', '-');
    return name;
}

std::string underscored(std::string name) {
    std::replace(name.begin(), name.end(), '-', '_');
    return name;
}

std::vector<std::string> setting_names(const CLI::App& app) {
    std::vector<std::string> names = option_names(app);
    std::erase_if(names, [](const std::string& name) { return !is_setting(name); });
    return names;
}

std::string variable_of(const std::string& option) {
    std::string name = std::string(prefix) + underscored(option);
    for (char& c : name) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
    return name;
}

/// Returns why the file cannot be read, or an empty string.
std::string read_file(const std::string& path, std::string& text) {
    const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "r"), std::fclose);
    if (!file) return std::strerror(errno);
    char buffer[4096];
    while (const std::size_t count = std::fread(buffer, 1, sizeof buffer, file.get()))
        text.append(buffer, count);
    return std::ferror(file.get()) != 0 ? std::strerror(errno) : "";
}

#ifdef DPTK_WITH_YAML
std::string place(const std::string& path, const YAML::Mark& mark) {
    return path + ":" + std::to_string(std::max(mark.line, 0) + 1) + ": ";
}

ConfigEntry entry_of(const std::string& path, const YAML::Node& key, const YAML::Node& value) {
    if (!key.IsScalar())
        throw dptk::ArgumentError(place(path, key.Mark()) + "expected the name of a setting");
    ConfigEntry entry{.option = dashed(key.Scalar()),
                      .key = key.Scalar(),
                      .kind = Kind::other,
                      .line = key.Mark().line + 1,
                      .where = place(path, key.Mark()) + key.Scalar()};
    if (value.IsNull()) entry.kind = Kind::null;
    if (value.IsScalar()) {
        entry.kind = Kind::scalar;
        entry.values = {value.Scalar()};
    }
    if (value.IsSequence() &&
        std::all_of(value.begin(), value.end(), [](const auto& one) { return one.IsScalar(); })) {
        entry.kind = Kind::list;
        for (const auto& one : value) entry.values.push_back(one.Scalar());
    }
    return entry;
}

std::vector<ConfigEntry> parse_yaml(const ConfigInputs& inputs) {
    std::vector<ConfigEntry> entries;
    try {
        const std::vector<YAML::Node> documents = YAML::LoadAll(inputs.text);
        if (documents.size() > 1)
            throw dptk::ArgumentError(place(inputs.path, documents[1].Mark()) + "expected one YAML document");
        if (documents.empty() || documents.front().IsNull()) return entries;
        const YAML::Node& root = documents.front();
        if (!root.IsMap())
            throw dptk::ArgumentError(place(inputs.path, root.Mark()) +
                                      "expected lines such as 'batch_size: 32'");
        for (const auto& item : root) entries.push_back(entry_of(inputs.path, item.first, item.second));
    } catch (const YAML::Exception& error) {
        throw dptk::ArgumentError(place(inputs.path, error.mark) + error.msg);
    }
    return entries;
}
#else
std::vector<ConfigEntry> parse_yaml(const ConfigInputs& inputs) {
    throw dptk::ArgumentError(
        inputs.path +
        ": this program was built without yaml-cpp; install libyaml-cpp-dev (Debian) or "
        "yaml-cpp-devel (Fedora), and build it again");
}
#endif

void check_duplicates(const std::vector<ConfigEntry>& entries) {
    std::map<std::string_view, const ConfigEntry*> found;
    for (const ConfigEntry& entry : entries) {
        const auto [first, is_new] = found.emplace(entry.option, &entry);
        if (!is_new)
            fail_at(entry, "already set in line " + std::to_string(first->second->line) + ", as " +
                               first->second->key);
    }
}

std::vector<std::string> values_for(const CLI::Option& option, const ConfigEntry& entry) {
    if (entry.kind == Kind::other || (entry.kind == Kind::list && !is_list(option)))
        fail_at(entry, is_list(option) ? "expected a list of values" : "expected one value, got several");
    if (!is_flag(option)) return entry.values;
    const std::string word = CLI::detail::to_lower(entry.values.front());
    if (word != "true" && word != "false")
        fail_at(entry, "expected true or false, got '" + entry.values.front() + "'");
    return {word};
}

bool is_number(const std::string& text) {
    char* end = nullptr;
    std::strtod(text.c_str(), &end);
    return !text.empty() && *end == '\0';
}

/// Returns the value as YAML, in quotes unless every parser reads it as the same text or number.
std::string quoted(const std::string& value) {
    static const std::regex plain("[A-Za-z/][-A-Za-z0-9_./]*");
    static const std::regex special("y|n|yes|no|on|off|true|false|null|nan|inf", std::regex::icase);
    if (is_number(value) || (std::regex_match(value, plain) && !std::regex_match(value, special)))
        return value;
    std::string text = "\"";
    for (const char c : value) {
        char hex[8];
        std::snprintf(hex, sizeof hex, "\\x%02x", static_cast<unsigned>(c) & 0xFFU);
        if (std::iscntrl(static_cast<unsigned char>(c)) != 0)
            text += hex;
        else
            text += c == '"' || c == '\\' ? std::string{'\\', c} : std::string{c};
    }
    return text + "\"";
}

std::string yaml_value(const CLI::Option& option, const std::vector<std::string>& values) {
    if (is_flag(option)) return CLI::detail::to_flag_value(values.front()) > 0 ? "true" : "false";
    if (!is_list(option)) return values.front().empty() ? "null" : quoted(values.front());
    std::string list;
    for (const std::string& value : values) list += (list.empty() ? "" : ", ") + quoted(value);
    return "[" + list + "]";
}

/// Describes the values that an option accepts.
std::string expected_values(const CLI::Option& option) {
    const std::string type = option.get_type_name();
    if (is_flag(option)) return "true or false";
    if (type.starts_with("UINT")) return "a whole number, 0 or above";
    return type.starts_with("INT") ? "a whole number" : type.starts_with("FLOAT") ? "a number" : type;
}

std::string origin_text(const Setting& setting) {
    switch (setting.origin) {
        case Origin::file: return "file: " + setting.where;
        case Origin::environment: return "environment: " + setting.where;
        case Origin::command_line: return "command line";
        default: return "default";
    }
}

}  // namespace

int visible_gpus() {
#ifdef DPTK_WITH_CUDNN
    return dptk::cuda::device_count();
#else
    return 0;
#endif
}

ConfigInputs read_inputs(const std::string& path) {
    ConfigInputs inputs{.path = path};
    for (char** variable = environ; *variable != nullptr; ++variable) {
        const std::string_view text = *variable;
        const std::size_t equals = text.find('=');
        if (text.starts_with(prefix) && equals != std::string_view::npos && equals + 1 < text.size())
            inputs.environment.emplace(text.substr(0, equals), text.substr(equals + 1));
    }
    const auto named = inputs.environment.find(variable_of("config"));
    if (named != inputs.environment.end()) {
        if (path.empty()) inputs.path = named->second;
        inputs.environment.erase(named);
    }
    if (inputs.path.empty()) return inputs;
    inputs.file_error = read_file(inputs.path, inputs.text);
    inputs.gpus = visible_gpus();
    return inputs;
}

void fail_at(const ConfigEntry& entry, const std::string& text) {
    throw dptk::ArgumentError(entry.where + ": " + text);
}

ConfigFile parse_config_file(const CLI::App& app, const ConfigInputs& inputs) {
    if (inputs.path.empty()) return {};
    if (!inputs.file_error.empty()) throw dptk::ArgumentError(inputs.path + ": " + inputs.file_error);
    std::vector<ConfigEntry> entries = parse_yaml(inputs);
    check_duplicates(entries);
    ConfigFile file;
    file.warning = translate_base_trainer(entries, inputs);
    if (!file.warning.empty()) file.warning = inputs.path + ": " + file.warning;
    std::vector<std::string> names = setting_names(app);
    for (std::string& name : base_trainer_names()) names.push_back(std::move(name));
    for (const ConfigEntry& entry : entries) {
        if (find_option(app, entry.option) == nullptr)
            fail_at(entry, "no such setting" + underscored(dptk::detail::suggestion(entry.option, names)));
    }
    for (ConfigEntry& entry : entries)  // an option may have several names
        entry.option = find_option(app, entry.option)->get_single_name();
    std::erase_if(entries, [](const ConfigEntry& entry) { return entry.kind == Kind::null; });
    check_duplicates(entries);  // under the names of options
    for (const ConfigEntry& entry : entries) {
        const CLI::Option& option = *find_option(app, entry.option);
        std::vector<std::string> values = values_for(option, entry);
        if (!values.empty())
            file.settings.push_back({entry.option, std::move(values), Origin::file, entry.where});
    }
    return file;
}

std::vector<Setting> environment_settings(const CLI::App& app, const ConfigInputs& inputs) {
    std::vector<Setting> settings;
    for (const auto& [variable, value] : inputs.environment) {
        const std::string name = dashed(CLI::detail::to_lower(variable.substr(prefix.size())));
        const CLI::Option* option = find_option(app, name);
        if (option == nullptr || variable != variable_of(name)) {
            std::vector<std::string> variables;
            for (const std::string& known : setting_names(app)) variables.push_back(variable_of(known));
            throw dptk::ArgumentError(variable + ": no such setting" +
                                      dptk::detail::suggestion(variable, variables));
        }
        std::vector<std::string> values{value};
        if (is_list(*option)) values = CLI::detail::split(value, ',');
        settings.push_back({option->get_single_name(), std::move(values), Origin::environment, variable});
    }
    return settings;
}

void apply(CLI::App& app, Setting& setting) {
    const std::string name = "--" + setting.option;
    CLI::Option& option = *app.get_option(name);
    try {
        option.clear();
        for (const std::string& value : setting.values) option.add_result(value);
        option.run_callback();
        setting.values = option.results();
        option.clear();
    } catch (const CLI::ValidationError& error) {
        const std::string text = error.what();
        throw dptk::ArgumentError(setting.where + text.substr(text.starts_with(name) ? name.size() : 0));
    } catch (const CLI::ParseError&) {
        throw dptk::ArgumentError(setting.where + ": expected " + expected_values(option) + ", got '" +
                                  CLI::detail::join(setting.values, " ") + "'");
    }
}

std::string to_yaml(const CLI::App& app, const std::map<std::string, Setting>& settings) {
    std::string text = "# Settings of the example train, for --config\n";
    for (const CLI::Option* option : app.get_options()) {
        const std::string name = option->get_single_name();
        if (!is_setting(name)) continue;
        const auto found = settings.find(name);
        const Setting setting = found != settings.end() ? found->second : Setting{.option = name};
        const std::string value =
            found != settings.end() ? yaml_value(*option, setting.values) : default_of(*option);
        std::string origin = origin_text(setting);
        std::replace_if(
            origin.begin(), origin.end(), [](unsigned char c) { return std::iscntrl(c) != 0; }, '?');
        text += underscored(name) + ": " + (value.empty() ? "null" : value) + "  # " + origin + "\n";
    }
    return text;
}

std::string default_of(const CLI::Option& option) {
    const std::string text = option.get_default_str();
    return text.empty() && is_flag(option) ? "false" : text;
}

std::vector<std::string> option_names(const CLI::App& app) {
    std::vector<std::string> names;
    for (const CLI::Option* option : app.get_options()) names.push_back(option->get_single_name());
    return names;
}
