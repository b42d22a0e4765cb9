/// encode_png(), which writes PNG without a library: the pixels are not compressed.
#pragma once

#include <string>

#include "dptk/core/config.hpp"
#include "dptk/data/image.hpp"

namespace DPTK_NAMESPACE::detail {

/// Returns the bytes of a PNG file. The image has at least one pixel, 1 or 3 channels, and less than 2^30
/// bytes of pixels and rows.
[[nodiscard]] std::string encode_png(const Image& image);

}  // namespace DPTK_NAMESPACE::detail

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/train/detail/png_encoder.ipp"
#endif
