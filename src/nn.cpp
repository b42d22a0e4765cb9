// The bodies of nn/ and train/, except for the backends that need a library. Compiled once where
// DPTK_SEPARATE_COMPILATION is defined: docs/installing.md.
#include "separate_compilation.hpp"

#include "dptk/nn/initialise.ipp"
#include "dptk/nn/layers.ipp"
#include "dptk/nn/models.ipp"
#include "dptk/nn/tensor.ipp"
#include "dptk/train/detail/parameter_hash.ipp"
#include "dptk/train/progress.ipp"
