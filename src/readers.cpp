// The bodies of data/readers/.
#include "separate_compilation.hpp"

#include "dptk/data/readers/idx.ipp"
#include "dptk/data/readers/idx_images.ipp"
