// Versions of the libraries that dptk uses: those that this program was built with, and the installed CUDA
// libraries.
#pragma once

#include "facts.hpp"

namespace info {

/// Finds the versions. Initializes no library, so it finds the MPI thread level only if MPI is initialized
/// already.
[[nodiscard]] LibraryFacts find_library_facts();

}  // namespace info
