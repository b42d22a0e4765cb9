// Function bodies of data/images/. See separate_compilation.hpp.
#include "separate_compilation.hpp"

#include "dptk/data/images/detail/jpeg_decoder.ipp"
#include "dptk/data/images/detail/png_chunks.ipp"
#include "dptk/data/images/detail/png_decoder.ipp"
#include "dptk/data/images/image_decoder.ipp"
#include "dptk/data/images/image_folder.ipp"
