#pragma once

#include "dptk/weights/load_weights.hpp"

#include <algorithm>
#include <set>

#include "dptk/core/detail/text.hpp"
#include "dptk/core/error.hpp"

namespace DPTK_NAMESPACE {

DPTK_INLINE std::string LoadedWeights::describe() const {
    std::string all = detail::text("loaded ", loaded.size(), loaded.size() == 1 ? " tensor" : " tensors");
    const auto add = [&](std::string_view what, const std::vector<std::string>& names) {
        constexpr std::size_t most = 8;
        for (std::size_t i = 0; i < names.size() && i <= most; ++i) {
            all += i == 0 ? detail::text("; ", what, ": ") : ", ";
            all += i < most ? names[i] : detail::text("and ", names.size() - most, " more");
        }
    };
    add("not in the file", missing);
    add("of another shape in the file", other_shape);
    add("of another type in the file", other_type);
    add("unused", unused);
    return all;
}

namespace detail {

/// A tensor of a file, without its prefix.
struct FileTensor {
    const std::string* name;
    const Shape* shape;
    std::string type;
    const SafetensorsEntry* entry;  // null if dptk does not have the type

    /// Whether its elements can be those of a parameter.
    [[nodiscard]] bool converts_to(DType dtype) const noexcept {
        return entry != nullptr &&
               (entry->dtype == dtype || (is_floating(entry->dtype) && is_floating(dtype)));
    }
};

using FileTensors = std::map<std::string_view, FileTensor>;

/// Returns a file's tensors by their names without "module.". Throws ArgumentError if two have the same name.
[[nodiscard]] DPTK_INLINE FileTensors tensors_by_name(const SafetensorsFile& file) {
    constexpr std::string_view prefix = "module.";
    FileTensors tensors;
    const auto add = [&](const FileTensor& tensor) {
        std::string_view name = *tensor.name;
        if (name.starts_with(prefix)) name.remove_prefix(prefix.size());
        if (!tensors.emplace(name, tensor).second)
            throw ArgumentError(
                text(file.path().string(), ": the names \"", name, "\" and \"", prefix, name, "\" clash"));
    };
    for (const SafetensorsEntry& entry : file.entries())
        add({&entry.name, &entry.shape, std::string(dtype_name(entry.dtype)), &entry});
    for (const UnreadableTensor& other : file.unreadable())
        add({&other.name, &other.shape, other.type, nullptr});
    return tensors;
}

/// Returns a hint that names a prefix of the file's names without which more than `loaded` tensors would fit;
/// empty if there is none.
[[nodiscard]] DPTK_INLINE std::string prefix_hint(const FileTensors& tensors,
                                                  const std::vector<NamedShape>& parameters,
                                                  std::size_t loaded) {
    std::string hint;
    for (const auto& [name, tensor] : tensors) {
        if (!name.ends_with(parameters.front().name)) continue;
        const std::string prefix(name.substr(0, name.size() - parameters.front().name.size()));
        const auto fits = [&](const NamedShape& parameter) {
            const auto found = tensors.find(prefix + parameter.name);
            return found != tensors.end() && *found->second.shape == parameter.shape &&
                   found->second.converts_to(parameter.dtype);
        };
        const auto count =
            static_cast<std::size_t>(std::count_if(parameters.begin(), parameters.end(), fits));
        if (count <= loaded) continue;
        loaded = count;
        hint = text("; without the prefix \"", prefix, "\" of the file's names, ",
                    count == parameters.size() ? "all" : text(count, " of ", parameters.size()),
                    " tensors would fit");
    }
    return hint;
}

DPTK_INLINE std::vector<const SafetensorsEntry*> match_weights(const SafetensorsFile& file,
                                                               const std::vector<NamedShape>& parameters,
                                                               Match match, LoadedWeights& report) {
    const FileTensors tensors = tensors_by_name(file);
    std::vector<const SafetensorsEntry*> entries;
    std::set<const std::string*> used;
    for (const NamedShape& parameter : parameters) {
        entries.push_back(nullptr);
        const auto found = tensors.find(parameter.name);
        if (found == tensors.end()) {
            report.missing.push_back(parameter.name);
            continue;
        }
        const FileTensor& tensor = found->second;
        used.insert(tensor.name);
        if (*tensor.shape != parameter.shape) {
            report.other_shape.push_back(text(parameter.name, " (", shape_text(*tensor.shape), " instead of ",
                                              shape_text(parameter.shape), ')'));
        } else if (!tensor.converts_to(parameter.dtype)) {
            report.other_type.push_back(
                text(parameter.name, " (", tensor.type, " instead of ", dtype_name(parameter.dtype), ')'));
        } else {
            report.loaded.push_back(parameter.name);
            entries.back() = tensor.entry;
        }
    }
    for (const SafetensorsEntry& entry : file.entries())
        if (!used.contains(&entry.name)) report.unused.push_back(entry.name);
    for (const UnreadableTensor& other : file.unreadable())
        if (!used.contains(&other.name)) report.unused.push_back(other.name);
    if (parameters.empty() || report.is_complete()) return entries;
    const std::string described = report.describe() + prefix_hint(tensors, parameters, report.loaded.size());
    if (report.loaded.empty())
        throw ArgumentError(text(file.path().string(), ": no tensor fits the network: ", described));
    if (match == Match::exact)
        throw ArgumentError(text(file.path().string(), ": expected the parameters of the network: ",
                                 described, "; Match::partial loads those that match"));
    return entries;
}

}  // namespace detail

}  // namespace DPTK_NAMESPACE
