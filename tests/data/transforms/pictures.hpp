/// The images that record_resample.py and record_transforms.py make.
#pragma once

#include <dptk/core/detail/fnv1a.hpp>
#include <dptk/data/image.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace test {

inline dptk::Image picture(std::size_t width, std::size_t height, std::size_t channels = 3,
                           bool sharp = false) {
    dptk::Image image{width, height, channels, {}};
    for (std::size_t y = 0; y < height; ++y) {
        for (std::size_t x = 0; x < width; ++x) {
            for (std::size_t c = 0; c < channels; ++c) {
                const std::size_t value = (7 * x + 13 * y + 29 * c + 3 * x * y) % 256;
                image.pixels.push_back(static_cast<std::uint8_t>(sharp ? (value > 127 ? 255 : 0) : value));
            }
        }
    }
    return image;
}

template <class T>
std::uint64_t hash_of_elements(std::span<const T> elements) {
    return dptk::detail::fnv1a({reinterpret_cast<const char*>(elements.data()), elements.size_bytes()});
}

}  // namespace test
