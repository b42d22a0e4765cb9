// The settings of the training example that do not come from its command line, but from a YAML file or the
// environment.
#pragma once

#include <map>
#include <string>
#include <vector>

namespace CLI {
class App;
class Option;
}  // namespace CLI

/// Where a setting comes from. Later ones override earlier ones.
enum class Origin { default_value, file, environment, command_line };

/// The values of an option, and where they come from.
struct Setting {
    std::string option;  // such as batch-size
    std::vector<std::string> values = {};
    Origin origin = Origin::default_value;
    std::string where = {};  // for messages: "run.yaml:3: batch_size" or "DPTK_TRAIN_BATCH_SIZE"
};

/// The configuration file and the variables DPTK_TRAIN_*, before they are parsed.
struct ConfigInputs {
    std::string path = {};        // empty: no file
    std::string text = {};        // of the file
    std::string file_error = {};  // why the file cannot be read; empty if it can
    std::map<std::string, std::string> environment = {};
    int gpus = 0;       // that this program can use
    int processes = 1;  // that were started
};

/// Returns the number of GPUs that this program can use; 0 if it was built without the trainer on a GPU.
[[nodiscard]] int visible_gpus();

/// Counts GPUs, and reads the environment and the file at `path`, or at DPTK_TRAIN_CONFIG if `path` is empty.
[[nodiscard]] ConfigInputs read_inputs(const std::string& path);

/// A key of a configuration file with its value.
struct ConfigEntry {
    enum class Kind { null, scalar, list, other };

    std::string option;  // the key, with '-' instead of '_'
    std::string key;
    Kind kind = Kind::null;
    std::vector<std::string> values = {};
    int line = 0;
    std::string where;  // for messages: "run.yaml:3: batch_size"
};

/// Throws ArgumentError with the place of the entry.
[[noreturn]] void fail_at(const ConfigEntry& entry, const std::string& text);

struct ConfigFile {
    std::vector<Setting> settings;
    std::string warning;  // for the user; may be empty
};

/// Parses a configuration file with settings of the app's options. Throws ArgumentError for a mistake, with
/// its line.
[[nodiscard]] ConfigFile parse_config_file(const CLI::App& app, const ConfigInputs& inputs);

/// Returns the settings of the variables DPTK_TRAIN_*, whose lists are separated by commas. Throws
/// ArgumentError for a variable that no option has.
[[nodiscard]] std::vector<Setting> environment_settings(const CLI::App& app, const ConfigInputs& inputs);

/// Writes the values to the option's variable, and replaces them by the spelling that the variable gets.
/// Throws ArgumentError if they are invalid.
void apply(CLI::App& app, Setting& setting);

/// Returns the settings in force as YAML that parse_config_file() accepts, with their origins as comments.
[[nodiscard]] std::string to_yaml(const CLI::App& app, const std::map<std::string, Setting>& settings);

/// Returns the default of an option, as a text.
[[nodiscard]] std::string default_of(const CLI::Option& option);

/// Returns the long names of the options, without dashes.
[[nodiscard]] std::vector<std::string> option_names(const CLI::App& app);
