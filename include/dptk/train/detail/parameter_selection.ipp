#pragma once

#include "dptk/train/detail/parameter_selection.hpp"

#include <cmath>
#include <string_view>

#include "dptk/core/detail/algorithms.hpp"
#include "dptk/core/detail/name_pattern.hpp"
#include "dptk/core/detail/suggestion.hpp"
#include "dptk/core/detail/text.hpp"
#include "dptk/core/error.hpp"

namespace DPTK_NAMESPACE::detail {

/// Returns the patterns that a user may have meant: the names, and those of the modules with ".*".
[[nodiscard]] DPTK_INLINE std::vector<std::string> useful_patterns(std::span<const std::string> names) {
    std::vector<std::string> patterns;
    for (const std::string& name : names) {
        for (std::size_t dot = name.find('.'); dot != std::string::npos; dot = name.find('.', dot + 1)) {
            std::string pattern = name.substr(0, dot) + ".*";
            if (!contains(patterns, pattern)) patterns.push_back(std::move(pattern));
        }
    }
    patterns.insert(patterns.end(), names.begin(), names.end());
    return patterns;
}

/// Returns the indices of the parameters that match. Throws ArgumentError if there are none.
[[nodiscard]] DPTK_INLINE std::vector<std::size_t> matching(std::span<const std::string> names,
                                                            std::string_view option,
                                                            const std::string& pattern) {
    std::vector<std::size_t> found;
    for (std::size_t i = 0; i < names.size(); ++i)
        if (matches_pattern(names[i], pattern)) found.push_back(i);
    if (!found.empty()) return found;
    std::string hint = suggestion(pattern, useful_patterns(names));
    if (hint.empty() && !names.empty())
        hint = text("; the first one is ", names.front(), ", the last one ", names.back());
    throw ArgumentError(
        text("Trainer: ", option, ": no parameter has a name that matches '", pattern, '\'', hint));
}

DPTK_INLINE std::vector<std::string> ParameterSelection::frozen_names(
    std::span<const std::string> names) const {
    std::vector<std::string> selected;
    for (const std::size_t i : frozen) selected.push_back(names[i]);
    return selected;
}

DPTK_INLINE ParameterSelection select_parameters(std::span<const std::string> names,
                                                 const TrainerOptions& options) {
    ParameterSelection selection;
    std::vector<bool> is_frozen(names.size());
    for (const std::string& pattern : options.freeze)
        for (const std::size_t i : matching(names, "freeze", pattern)) is_frozen[i] = true;
    for (std::size_t i = 0; i < names.size(); ++i)
        if (is_frozen[i]) selection.frozen.push_back(i);
    if (!names.empty() && selection.frozen.size() == names.size())
        throw ArgumentError(
            text("Trainer: freeze: expected a parameter that trains, but the patterns match all ",
                 names.size(), " parameters"));
    selection.lr_factors.assign(names.size(), 1);
    for (const auto& [pattern, factor] : options.lr_factors) {
        const std::vector<std::size_t> found = matching(names, "lr_factors", pattern);
        if (!(factor >= 0) || !std::isfinite(factor))
            throw ArgumentError(text("Trainer: lr_factors: expected a finite factor of at least 0 for '",
                                     pattern, "', got ", factor));
        if (all_of(found, [&](std::size_t i) { return is_frozen[i]; }))
            throw ArgumentError(
                text("Trainer: lr_factors: all parameters that match '", pattern, "' are frozen"));
        for (const std::size_t i : found) selection.lr_factors[i] = factor;
    }
    return selection;
}

DPTK_INLINE std::string pattern_lines(const TrainerOptions& options) {
    std::string lines = "\nfreeze";
    for (const std::string& pattern : options.freeze) lines += ' ' + pattern;
    lines += "\nlr_factors";
    for (const auto& [pattern, factor] : options.lr_factors) lines += text(' ', pattern, '=', factor);
    return lines;
}

}  // namespace DPTK_NAMESPACE::detail
