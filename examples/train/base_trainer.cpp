#include "base_trainer.hpp"

#include <algorithm>
#include <cctype>
#include <cstddef>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "options.hpp"

namespace {

using Kind = ConfigEntry::Kind;

/// What the translation of an entry depends on, and what it results in.
struct Context {
    bool is_distributed = false;   // distributed: True, with one rank per device
    bool wants_processes = false;  // parallel: ddp
    bool wants_pretrained = false;
    std::optional<bool> finetunes = {};  // finetune, if it is no file
    std::string model_file = {};
    std::string epochs = {};
    std::size_t batch_factor = 1;  // the ranks that share the batch of a process
    int gpus = 0;
    int processes = 1;
    std::vector<ConfigEntry> implied = {};
    std::vector<std::string> without_effect = {};
    std::string remarks = {};
};

std::string lower_letters(std::string_view text) {
    std::string letters;
    for (const char c : text) {
        const auto byte = static_cast<unsigned char>(c);
        if (std::isalnum(byte) != 0) letters += static_cast<char>(std::tolower(byte));
    }
    return letters;
}

std::optional<bool> as_bool(const ConfigEntry& entry) {
    if (entry.kind != Kind::scalar) return std::nullopt;
    const std::string word = lower_letters(entry.values.front());
    if (word == "true" || word == "yes" || word == "on") return true;
    if (word == "false" || word == "no" || word == "off") return false;
    return std::nullopt;
}

bool require_bool(const ConfigEntry& entry) {
    const std::optional<bool> value = as_bool(entry);
    if (!value) fail_at(entry, "expected true or false");
    return *value;
}

void set_scalar(ConfigEntry& entry, std::string value) {
    entry.kind = Kind::scalar;
    entry.values = {std::move(value)};
}

void rename_only(ConfigEntry&, Context&) {}

void ignore(ConfigEntry& entry, Context& context) {
    context.without_effect.push_back(entry.key);
}

/// Adds an option that the entry implies. Errors about it name the entry's line.
void imply(const ConfigEntry& entry, Context& context, const char* option, std::string value) {
    context.implied.push_back(entry);
    context.implied.back().option = option;
    set_scalar(context.implied.back(), std::move(value));
}

void translate_data(ConfigEntry& entry, Context& context) {
    imply(entry, context, "dataset", "images");
}

void translate_input_size(ConfigEntry& entry, Context&) {
    if (entry.kind != Kind::list) return;
    if (entry.values.size() != 2) fail_at(entry, "expected [width, height]");
    const std::string width = entry.values[0];
    if (width != entry.values[1])
        fail_at(entry, "images are square here: expected equal width and height, got " + width + " and " +
                           entry.values[1]);
    set_scalar(entry, width);
}

/// Replaces spellings such as MultiStepLR.
void translate_scheduler(ConfigEntry& entry, Context&) {
    if (entry.kind != Kind::scalar) return;
    const std::string word = lower_letters(entry.values.front());
    for (const std::string_view known : {"multi-step", "cosine", "linear", "constant"}) {
        const std::string letters = lower_letters(known);
        if (word == letters || word == letters + "lr" || word == letters + "annealinglr")
            set_scalar(entry, std::string(known));
    }
}

void translate_progress(ConfigEntry& entry, Context&) {
    if (const std::optional<bool> is_shown = as_bool(entry)) set_scalar(entry, *is_shown ? "auto" : "lines");
}

void translate_loss(ConfigEntry& entry, Context&) {
    const std::string word = entry.kind == Kind::scalar ? lower_letters(entry.values.front()) : "";
    if (word != "crossentropyloss" && word != "crossentropy" && word != "celoss" && word != "ce")
        fail_at(entry, "the only loss here is CrossEntropyLoss; label_smoothing: 0.1 smooths its targets");
}

void translate_gpu_id(ConfigEntry& entry, Context& context) {
    if (entry.kind == Kind::other) fail_at(entry, "expected a list of device numbers");
    const std::vector<std::string> ids = entry.values;
    for (const std::string& id : ids) {
        const bool is_number =
            std::all_of(id.begin(), id.end(), [](unsigned char c) { return std::isdigit(c) != 0; });
        if (id.empty() || !is_number) fail_at(entry, "expected a list of device numbers, got '" + id + "'");
    }
    const bool has_launcher = context.is_distributed && context.processes > 1;
    if (ids.size() > 1 && !has_launcher && !context.wants_processes) {
        imply(entry, context, "parallel", "dp");
        imply(entry, context, "replicas", std::to_string(ids.size()));
        if (context.is_distributed) context.batch_factor = ids.size();  // batch_size is that of a rank
    }
    set_scalar(entry, ids.empty() || context.gpus == 0 ? "cpu" : "cuda");
    if (ids.empty()) return;
    if (context.gpus == 0) {
        context.remarks += "; gpu_id: there is no GPU here, training on the CPU";
        return;
    }
    std::string devices;
    bool are_first = true;
    for (std::size_t i = 0; i < ids.size(); ++i) {
        devices += (i == 0 ? "" : ",") + ids[i];
        are_first = are_first && ids[i] == std::to_string(i);
    }
    if (!are_first)
        context.remarks += "; each rank uses the GPU of its local rank: CUDA_VISIBLE_DEVICES=" + devices +
                           (ids.size() == 1 ? " selects another" : " selects others");
}

/// A file, or false for none.
void translate_weights(ConfigEntry& entry, Context&) {
    const std::optional<bool> is_wanted = as_bool(entry);
    if (is_wanted == true) fail_at(entry, "expected a safetensors file");
    if (is_wanted == false || entry.values == std::vector<std::string>{""}) entry.kind = Kind::null;
}

void translate_model_file(ConfigEntry& entry, Context& context) {
    if (context.finetunes == false) entry.kind = Kind::null;
    translate_weights(entry, context);
}

/// Whether to load model_file, or a file itself.
void translate_finetune(ConfigEntry& entry, Context& context) {
    if (as_bool(entry) != true) return translate_weights(entry, context);
    if (context.model_file.empty()) fail_at(entry, "expected model_file: FILE as well");
    entry.kind = Kind::null;
}

void translate_pretrained(ConfigEntry& entry, Context& context) {
    if (as_bool(entry) != true) return translate_weights(entry, context);
    context.wants_pretrained = true;
    entry.kind = Kind::null;
}

/// Prunes before the first epoch.
void translate_pruning(ConfigEntry& entry, Context& context) {
    const bool prunes = require_bool(entry);
    set_scalar(entry, prunes ? "l1" : "none");
    if (!prunes) return;
    imply(entry, context, "sparsity", "0.2");
    imply(entry, context, "prune-epochs", context.epochs);
}

void translate_distributed(ConfigEntry& entry, Context&) {
    (void)require_bool(entry);
}

struct ForeignName {
    std::string_view name;
    std::string_view option;  // empty: no option
    void (*translate)(ConfigEntry& entry, Context& context);
};

constexpr ForeignName foreign_names[] = {
    {"class-file", "", ignore},
    {"class-name", "", ignore},
    {"data-type", "", ignore},
    {"distributed", "", translate_distributed},
    {"finetune", "weights", translate_finetune},
    {"flag", "", ignore},
    {"gpu-id", "device", translate_gpu_id},
    {"input-size", "image-size", translate_input_size},
    {"log-freq", "", ignore},
    {"loss-type", "", translate_loss},
    {"model-file", "weights", translate_model_file},
    {"net-type", "model", rename_only},
    {"num-epochs", "epochs", rename_only},
    {"num-warn-up", "warmup", rename_only},
    {"num-workers", "workers", rename_only},
    {"optim-type", "optimizer", rename_only},
    {"polyaxon", "", ignore},
    {"pretrained", "weights", translate_pretrained},
    {"progress", "progress", translate_progress},
    {"rgb-mean", "", ignore},
    {"rgb-std", "", ignore},
    {"scheduler", "scheduler", translate_scheduler},
    {"start-save", "", ignore},
    {"test-transform", "", ignore},
    {"train-data", "data", translate_data},
    {"train-transform", "", ignore},
    {"use-prune", "prune", translate_pruning},
    {"width-mult", "", ignore},
};

/// Returns the entry with this key, '-' instead of '_', if it has one value.
ConfigEntry* find_value(std::vector<ConfigEntry>& entries, std::string_view option) {
    const auto found = std::find_if(entries.begin(), entries.end(), [&](const ConfigEntry& entry) {
        return entry.option == option && entry.kind == Kind::scalar;
    });
    return found == entries.end() ? nullptr : &*found;
}

/// Reads what the translation of other entries depends on.
Context context_of(std::vector<ConfigEntry>& entries, const ConfigInputs& inputs) {
    Context context{
        .epochs = std::to_string(Options().epochs), .gpus = inputs.gpus, .processes = inputs.processes};
    if (const auto* entry = find_value(entries, "distributed"))
        context.is_distributed = as_bool(*entry) == true;
    if (const auto* entry = find_value(entries, "parallel"))
        context.wants_processes = entry->values[0] == "ddp";
    if (const auto* entry = find_value(entries, "finetune")) context.finetunes = as_bool(*entry);
    if (const auto* entry = find_value(entries, "model-file")) context.model_file = entry->values[0];
    for (const char* name : {"epochs", "num-epochs"})
        if (const auto* entry = find_value(entries, name)) context.epochs = entry->values[0];
    return context;
}

/// Multiplies the batch size, unless it is no number, which is an error later.
void multiply_batch(std::vector<ConfigEntry>& entries, Context& context) {
    if (context.batch_factor == 1) return;
    const ConfigEntry replicas = context.implied.back();
    ConfigEntry* const entry = find_value(entries, "batch-size");
    const std::string size = entry != nullptr ? entry->values[0] : std::to_string(Options().batch_size);
    const bool is_number =
        !size.empty() && size.size() < 9 && size.find_first_not_of("0123456789") == std::string::npos;
    if (!is_number) return;
    const std::string all = std::to_string(std::stoul(size) * context.batch_factor);
    if (entry != nullptr)
        set_scalar(*entry, all);
    else
        imply(replicas, context, "batch-size", all);
}

/// Milestones beside another schedule have no effect there.
void drop_milestones(std::vector<ConfigEntry>& entries, Context& context) {
    const ConfigEntry* const scheduler = find_value(entries, "scheduler");
    if (scheduler == nullptr || scheduler->values[0] == "multi-step") return;
    for (ConfigEntry& entry : entries) {
        if (entry.option != "milestones" || entry.kind == Kind::null) continue;
        context.without_effect.push_back(entry.key);
        entry.kind = Kind::null;
    }
}

bool sets(const std::vector<ConfigEntry>& entries, std::string_view option) {
    return std::any_of(entries.begin(), entries.end(), [&](const ConfigEntry& entry) {
        return entry.option == option && entry.kind != Kind::null;
    });
}

/// Returns the warning about what has no effect here.
std::string warning(const Context& context) {
    std::string text;
    for (const std::string& key : context.without_effect) text += (text.empty() ? "" : ", ") + key;
    if (!text.empty()) text = "without effect here: " + text;
    text += context.remarks;
    return text.starts_with("; ") ? text.substr(2) : text;
}

}  // namespace

std::vector<std::string> base_trainer_names() {
    std::vector<std::string> names;
    for (const ForeignName& foreign : foreign_names) names.emplace_back(foreign.name);
    return names;
}

std::string translate_base_trainer(std::vector<ConfigEntry>& entries, const ConfigInputs& inputs) {
    Context context = context_of(entries, inputs);
    for (ConfigEntry& entry : entries) {
        const auto* const foreign =
            std::find_if(std::begin(foreign_names), std::end(foreign_names),
                         [&](const ForeignName& one) { return one.name == entry.option; });
        if (foreign == std::end(foreign_names)) continue;
        if (entry.kind != Kind::null) foreign->translate(entry, context);
        entry.option = foreign->option;
    }
    std::erase_if(entries, [](const ConfigEntry& entry) { return entry.option.empty(); });
    multiply_batch(entries, context);
    drop_milestones(entries, context);
    for (ConfigEntry& entry : context.implied)
        if (!sets(entries, entry.option)) entries.push_back(std::move(entry));
    if (context.wants_pretrained && !sets(entries, "weights"))
        context.remarks +=
            "; pretrained: weights come from a file: scripts/convert-weights converts PyTorch's, and "
            "--weights names "
            "the result";
    return warning(context);
}
