// The names of settings in configuration files of Pytorch-Base-Trainer.
#pragma once

#include <string>
#include <vector>

#include "config.hpp"

/// Returns the names that translate_base_trainer() knows, with '-' instead of '_'.
[[nodiscard]] std::vector<std::string> base_trainer_names();

/// Replaces entries with names or values of Pytorch-Base-Trainer by those of this program, and drops those
/// that have no meaning here. Returns a warning that names these; it may be empty. Throws ArgumentError for a
/// value that this program does not support.
[[nodiscard]] std::string translate_base_trainer(std::vector<ConfigEntry>& entries,
                                                 const ConfigInputs& inputs);
