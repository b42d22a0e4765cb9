#pragma once

#include "dptk/train/detail/sample_image.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>

namespace DPTK_NAMESPACE::detail {

DPTK_INLINE Image sample_image(std::span<const float> values, const Shape& shape) {
    const bool is_image = shape.size() == 3 && (shape[0] == 1 || shape[0] == 3) && !values.empty();
    if (!is_image) return {};
    double lowest = std::numeric_limits<double>::infinity(), highest = -lowest;
    for (const double value : values) {
        if (!std::isfinite(value)) continue;
        lowest = std::min(lowest, value);
        highest = std::max(highest, value);
    }
    const double scale = highest > lowest ? 255 / (highest - lowest) : 0;
    const auto pixel = [&](double value) {
        return std::isfinite(value) ? static_cast<std::uint8_t>(std::lround((value - lowest) * scale))
                                    : std::uint8_t{0};
    };
    Image image{.width = shape[2], .height = shape[1], .channels = shape[0], .pixels = {}};
    const std::size_t area = image.width * image.height;
    image.pixels.reserve(values.size());
    for (std::size_t place = 0; place < area; ++place)
        for (std::size_t channel = 0; channel < image.channels; ++channel)
            image.pixels.push_back(pixel(values[channel * area + place]));
    return image;
}

}  // namespace DPTK_NAMESPACE::detail
