// Function bodies of nn/cpu/ (networks over oneDNN). See separate_compilation.hpp.
#include "separate_compilation.hpp"

#include "dptk/nn/cpu/backend.ipp"
