/// Checks of a Trainer's options that do not depend on its model.
#pragma once

#include <string>

#include "dptk/core/config.hpp"
#include "dptk/train/trainer_options.hpp"

namespace DPTK_NAMESPACE::detail {

/// Returns what is wrong with the options; empty if they are valid.
[[nodiscard]] std::string problem_of_options(const TrainerOptions& options);

/// Returns the name of the optimizer, which differs if its state has other arrays.
[[nodiscard]] std::string optimizer_name(const TrainerOptions& options);

/// Returns the learning rate.
[[nodiscard]] double initial_lr(const TrainerOptions& options);

/// Returns the options that must be equal on all ranks, one line each.
[[nodiscard]] std::string options_table(const TrainerOptions& options);

}  // namespace DPTK_NAMESPACE::detail

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/train/detail/check_options.ipp"
#endif
