// The bodies of data/readers/. Compiled once where DPTK_SEPARATE_COMPILATION is defined: docs/installing.md.
#include "separate_compilation.hpp"

#include "dptk/data/readers/idx.ipp"
#include "dptk/data/readers/idx_images.ipp"
