/// resample(), which changes the size of an image with the same bits as Image.resize() of Pillow 11 with
/// BILINEAR.
#pragma once

#include <cstddef>

#include "dptk/core/config.hpp"
#include "dptk/data/image.hpp"
#include "dptk/data/transforms/crop.hpp"

namespace DPTK_NAMESPACE {

/// Returns the image in another size. A pixel of the result is the weighted mean of the pixels around its
/// place in the image, along rows and along columns: with triangular weights, which are wider if
/// the image becomes smaller (antialiasing), in fixed-point arithmetic with 22 fractional bits. Throws
/// ArgumentError if the image has no pixels or more than 4 channels, or for a size of 0 or above 2^16.
[[nodiscard]] Image resample(const Image& image, std::size_t width, std::size_t height);

/// Returns a part of the image in another size: resample(crop(image, window), width, height), without the
/// copy that crop() makes. Throws as these two do.
[[nodiscard]] Image resample(const Image& image, const CropWindow& window, std::size_t width,
                             std::size_t height);

}  // namespace DPTK_NAMESPACE

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/data/transforms/resample.ipp"
#endif
