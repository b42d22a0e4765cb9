/// The parameters that the patterns of a Trainer's options select.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "dptk/core/config.hpp"
#include "dptk/train/trainer_options.hpp"

namespace DPTK_NAMESPACE::detail {

/// What TrainerOptions::freeze and TrainerOptions::lr_factors say about the parameters of a model.
struct ParameterSelection {
    std::vector<std::size_t> frozen;  ///< Indices, ascending.
    std::vector<double> lr_factors;   ///< By parameter.

    /// Returns the names of the frozen parameters.
    [[nodiscard]] std::vector<std::string> frozen_names(std::span<const std::string> names) const;

    /// Sets the groups of an optimizer whose slots are the parameters' indices.
    template <class Optimizer>
    void set_groups(Optimizer& optimizer) const {
        for (std::size_t i = 0; i < lr_factors.size(); ++i)
            if (lr_factors[i] != 1) optimizer.set_group({&i, 1}, {.lr_factor = lr_factors[i]});
        if (!frozen.empty()) optimizer.set_group(frozen, {.is_frozen = true});
    }
};

/// Selects the parameters of a model with these names. Throws ArgumentError if a pattern matches no
/// parameter, with the most similar one; if a factor is negative or not finite, or is only for frozen
/// parameters; or if all parameters are frozen.
[[nodiscard]] ParameterSelection select_parameters(std::span<const std::string> names,
                                                   const TrainerOptions& options);

/// Returns both options, one line each, for comparisons between ranks.
[[nodiscard]] std::string pattern_lines(const TrainerOptions& options);

}  // namespace DPTK_NAMESPACE::detail

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/train/detail/parameter_selection.ipp"
#endif
