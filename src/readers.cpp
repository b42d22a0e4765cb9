// Function bodies of data/readers/. See separate_compilation.hpp.
#include "separate_compilation.hpp"

#include "dptk/data/readers/cifar.ipp"
#include "dptk/data/readers/detail/gzip_file.ipp"
#include "dptk/data/readers/idx.ipp"
#include "dptk/data/readers/idx_images.ipp"
#include "dptk/data/readers/npy.ipp"
