#pragma once

#include "dptk/weights/load_weights.hpp"

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

DPTK_INLINE std::vector<const SafetensorsEntry*> match_weights(const SafetensorsFile& file,
                                                               const std::vector<NamedShape>& parameters,
                                                               Match match, LoadedWeights& report) {
    constexpr std::string_view prefix = "module.";
    std::map<std::string_view, const SafetensorsEntry*> by_name;
    for (const SafetensorsEntry& entry : file.entries()) {
        std::string_view name = entry.name;
        if (name.starts_with(prefix)) name.remove_prefix(prefix.size());
        if (!by_name.emplace(name, &entry).second)
            throw ArgumentError(
                text(file.path().string(), ": the names \"", name, "\" and \"", prefix, name, "\" clash"));
    }
    std::vector<const SafetensorsEntry*> entries;
    std::set<const SafetensorsEntry*> used;
    for (const NamedShape& parameter : parameters) {
        const auto found = by_name.find(parameter.name);
        const SafetensorsEntry* entry = found == by_name.end() ? nullptr : found->second;
        if (entry == nullptr) {
            report.missing.push_back(parameter.name);
        } else if (used.insert(entry); entry->shape != parameter.shape) {
            report.other_shape.push_back(text(parameter.name, " (", shape_text(entry->shape), " instead of ",
                                              shape_text(parameter.shape), ')'));
            entry = nullptr;
        } else if (entry->dtype != parameter.dtype &&
                   !(is_floating(entry->dtype) && is_floating(parameter.dtype))) {
            report.other_type.push_back(text(parameter.name, " (", dtype_name(entry->dtype), " instead of ",
                                             dtype_name(parameter.dtype), ')'));
            entry = nullptr;
        } else {
            report.loaded.push_back(parameter.name);
        }
        entries.push_back(entry);
    }
    for (const SafetensorsEntry& entry : file.entries()) {
        if (!used.contains(&entry)) report.unused.push_back(entry.name);
    }
    if (match == Match::exact && !report.is_complete())
        throw ArgumentError(text(file.path().string(), ": expected the parameters of the network: ",
                                 report.describe(), "; Match::partial loads those that match"));
    return entries;
}

}  // namespace detail

}  // namespace DPTK_NAMESPACE
