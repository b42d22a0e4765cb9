// The libraries below dptk: those that this program was built with, and those of CUDA that are installed.
#pragma once

#include "facts.hpp"

namespace info {

/// Initialises nothing: MPI's thread level is known where somebody has initialised MPI before.
[[nodiscard]] LibraryFacts find_library_facts();

}  // namespace info
