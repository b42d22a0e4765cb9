/// sample_image(), which makes a picture of a network's input.
#pragma once

#include <span>

#include "dptk/core/config.hpp"
#include "dptk/core/tensor.hpp"
#include "dptk/data/image.hpp"

namespace DPTK_NAMESPACE::detail {

/// Returns the values of one sample, of shape [channels, height, width], as an image in which the lowest
/// value is 0 and the highest one 255. Values that are not finite are 0. Returns an image without pixels if
/// the shape is not that of an image of 1 or 3 channels.
[[nodiscard]] Image sample_image(std::span<const float> values, const Shape& shape);

}  // namespace DPTK_NAMESPACE::detail

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/train/detail/sample_image.ipp"
#endif
