// Function bodies of weights/. See separate_compilation.hpp.
#include "separate_compilation.hpp"

#include "dptk/weights/load_weights.ipp"
#include "dptk/weights/safetensors.ipp"
