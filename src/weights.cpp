// Function bodies of nn/weights/. See separate_compilation.hpp.
#include "separate_compilation.hpp"

#include "dptk/nn/weights/load_weights.ipp"
#include "dptk/nn/weights/safetensors.ipp"
