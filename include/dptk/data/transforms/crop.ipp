#pragma once

#include "dptk/data/transforms/crop.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string_view>
#include <type_traits>

#include "dptk/core/detail/text.hpp"
#include "dptk/core/error.hpp"

namespace DPTK_NAMESPACE::detail {

DPTK_INLINE void check_within(std::string_view function, const Image& image, const CropWindow& window) {
    const bool is_within = window.left <= image.width && window.width <= image.width - window.left &&
                           window.top <= image.height && window.height <= image.height - window.top;
    if (!is_within)
        throw ArgumentError(text(function, ": expected a window within ", image.width, " x ", image.height,
                                 " pixels, found ", window.width, " x ", window.height, " pixels at (",
                                 window.left, ", ", window.top, ')'));
}

/// Returns an image of black pixels, with `image` at the given place.
[[nodiscard]] DPTK_INLINE Image on_black(const Image& image, std::size_t left, std::size_t top,
                                         std::size_t width, std::size_t height) {
    Image out{width, height, image.channels, std::vector<std::uint8_t>(width * height * image.channels)};
    for (std::size_t y = 0; y < image.height; ++y) {
        const auto row = image.row(y);
        const std::size_t first = ((top + y) * width + left) * image.channels;
        std::copy(row.begin(), row.end(), out.pixels.begin() + static_cast<std::ptrdiff_t>(first));
    }
    return out;
}

/// Returns the first of `part` pixels in the middle of `all`. Rounds halves to even, as Python does.
[[nodiscard]] DPTK_INLINE std::size_t first_in_middle(std::size_t all, std::size_t part) {
    return static_cast<std::size_t>(std::nearbyint(static_cast<double>(all - part) / 2));
}

}  // namespace DPTK_NAMESPACE::detail

namespace DPTK_NAMESPACE {

DPTK_INLINE Image crop(const Image& image, const CropWindow& window) {
    detail::check_within("crop", image, window);
    Image out{window.width, window.height, image.channels, {}};
    out.pixels.reserve(window.width * window.height * image.channels);
    for (std::size_t y = 0; y < window.height; ++y) {
        const auto row =
            image.row(window.top + y).subspan(window.left * image.channels, window.width * image.channels);
        out.pixels.insert(out.pixels.end(), row.begin(), row.end());
    }
    return out;
}

DPTK_INLINE Image pad(const Image& image, std::size_t border) {
    return detail::on_black(image, border, border, image.width + 2 * border, image.height + 2 * border);
}

DPTK_INLINE Image center_crop(const Image& image, std::size_t width, std::size_t height) {
    if (width > image.width || height > image.height) {
        const std::size_t all_width = std::max(width, image.width);
        const std::size_t all_height = std::max(height, image.height);
        return center_crop(detail::on_black(image, (all_width - image.width) / 2,
                                            (all_height - image.height) / 2, all_width, all_height),
                           width, height);
    }
    return crop(image, {.left = detail::first_in_middle(image.width, width),
                        .top = detail::first_in_middle(image.height, height),
                        .width = width,
                        .height = height});
}

DPTK_INLINE Image flip_horizontally(const Image& image) {
    Image out{image.width, image.height, image.channels, {}};
    out.pixels.resize(image.pixels.size());
    const auto flip = [&](auto channels) {
        std::uint8_t* to = out.pixels.data();
        for (std::size_t y = 0; y < image.height; ++y) {
            const auto row = image.row(y);
            for (const std::uint8_t* pixel = row.data() + row.size(); pixel != row.data();) {
                pixel -= channels;
                for (std::size_t c = 0; c < channels; ++c) *to++ = pixel[c];
            }
        }
    };
    if (image.channels == 3) {
        flip(std::integral_constant<std::size_t, 3>());  // three times as fast as a number known at run time
    } else {
        flip(image.channels);
    }
    return out;
}

}  // namespace DPTK_NAMESPACE
