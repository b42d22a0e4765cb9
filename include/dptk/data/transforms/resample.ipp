#pragma once

#include "dptk/data/transforms/resample.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "dptk/core/detail/text.hpp"
#include "dptk/core/error.hpp"

namespace DPTK_NAMESPACE::detail {

inline constexpr int weight_bits = 22;

/// The pixels that one pixel of the result depends on, along one dimension.
struct ResampleWindow {
    std::size_t first = 0;
    std::vector<std::int32_t> weights;  // in fixed point; their sum is about 1
};

/// Returns the windows of all pixels along one dimension that shrinks or grows from `from` to `to` pixels.
[[nodiscard]] DPTK_INLINE std::vector<ResampleWindow> resample_windows(std::size_t from, std::size_t to) {
    const double scale = static_cast<double>(from) / static_cast<double>(to);
    const double reach = std::max(scale, 1.0);
    std::vector<ResampleWindow> windows(to);
    std::vector<double> weights;
    for (std::size_t i = 0; i < to; ++i) {
        const double center = (static_cast<double>(i) + 0.5) * scale;
        const auto first = static_cast<std::size_t>(std::lround(std::max(center - reach, 0.0)));
        const auto last = std::min(static_cast<std::size_t>(std::lround(center + reach)), from);
        weights.clear();
        double sum = 0;
        for (std::size_t p = first; p < last; ++p) {
            const double distance = std::abs((static_cast<double>(p) - center + 0.5) * (1.0 / reach));
            weights.push_back(distance < 1 ? 1 - distance : 0);
            sum += weights.back();
        }
        windows[i].first = first;
        for (const double weight : weights) {
            const double normal = sum == 0 ? weight : weight / sum;
            windows[i].weights.push_back(static_cast<std::int32_t>(std::lround(normal * (1 << weight_bits))));
        }
    }
    return windows;
}

[[nodiscard]] inline std::uint8_t from_fixed_point(std::int32_t sum) noexcept {
    return static_cast<std::uint8_t>(std::clamp(sum >> weight_bits, 0, 255));
}

/// Computes the rows of an image with `channels` channels, a constant so that a pixel's sums stay in
/// registers.
template <std::size_t channels>
void resample_rows(const Image& image, const CropWindow& part, std::span<const ResampleWindow> windows,
                   std::uint8_t* to) {
    for (std::size_t y = 0; y < part.height; ++y) {
        const std::uint8_t* const row = image.row(part.top + y).data() + part.left * channels;
        for (const ResampleWindow& window : windows) {
            const std::uint8_t* from = row + window.first * channels;
            std::array<std::int32_t, channels> sums;
            sums.fill(1 << (weight_bits - 1));
            for (const std::int32_t weight : window.weights) {
                for (std::size_t c = 0; c < channels; ++c) sums[c] += *from++ * weight;
            }
            for (const std::int32_t sum : sums) *to++ = from_fixed_point(sum);
        }
    }
}

[[nodiscard]] DPTK_INLINE Image resample_rows(const Image& image, const CropWindow& part, std::size_t width) {
    Image out{width, part.height, image.channels, {}};
    out.pixels.resize(width * part.height * image.channels);
    const std::vector<ResampleWindow> windows = resample_windows(part.width, width);
    switch (image.channels) {
        case 1: resample_rows<1>(image, part, windows, out.pixels.data()); break;
        case 2: resample_rows<2>(image, part, windows, out.pixels.data()); break;
        case 3: resample_rows<3>(image, part, windows, out.pixels.data()); break;
        case 4: resample_rows<4>(image, part, windows, out.pixels.data()); break;
        default: break;  // resample() has checked the channels
    }
    return out;
}

[[nodiscard]] DPTK_INLINE Image resample_columns(const Image& image, std::size_t height) {
    Image out{image.width, height, image.channels, {}};
    const std::size_t row_bytes = image.width * image.channels;
    out.pixels.resize(height * row_bytes);
    std::vector<std::int32_t> sums(row_bytes);
    std::uint8_t* to = out.pixels.data();
    for (const ResampleWindow& window : resample_windows(image.height, height)) {
        std::fill(sums.begin(), sums.end(), 1 << (weight_bits - 1));
        for (std::size_t p = 0; p < window.weights.size(); ++p) {
            const std::uint8_t* const from = image.pixels.data() + (window.first + p) * row_bytes;
            const std::int32_t weight = window.weights[p];
            for (std::size_t i = 0; i < row_bytes; ++i) sums[i] += from[i] * weight;
        }
        for (const std::int32_t sum : sums) *to++ = from_fixed_point(sum);
    }
    return out;
}

}  // namespace DPTK_NAMESPACE::detail

namespace DPTK_NAMESPACE {

DPTK_INLINE Image resample(const Image& image, std::size_t width, std::size_t height) {
    return resample(image, {.width = image.width, .height = image.height}, width, height);
}

DPTK_INLINE Image resample(const Image& image, const CropWindow& window, std::size_t width,
                           std::size_t height) {
    constexpr std::size_t most = std::size_t{1} << 16;
    detail::check_within("resample", image, window);
    if (image.pixels.empty() || window.width == 0 || window.height == 0)
        throw ArgumentError("resample: expected an image with pixels, found none");
    if (width == 0 || height == 0 || width > most || height > most)
        throw ArgumentError(detail::text("resample: expected a size of 1 to ", most, " pixels, found ", width,
                                         " x ", height));
    if (image.channels > 4)
        throw ArgumentError(detail::text("resample: expected at most 4 channels, found ", image.channels));
    Image out = width == window.width ? crop(image, window) : detail::resample_rows(image, window, width);
    if (height != window.height) out = detail::resample_columns(out, height);
    return out;
}

}  // namespace DPTK_NAMESPACE
