/// Image, an 8-bit image in memory, as decoders of files make it and transforms change it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "dptk/core/config.hpp"
#include "dptk/core/detail/fnv1a.hpp"

namespace DPTK_NAMESPACE {

/// Rows of pixels from top to bottom. The channels of a pixel follow each other.
struct Image {
    std::size_t width = 0;             ///< In pixels.
    std::size_t height = 0;            ///< In pixels.
    std::size_t channels = 0;          ///< 3 for red, green and blue; 1 for gray.
    std::vector<std::uint8_t> pixels;  ///< Of shape [height, width, channels].

    /// Returns the pixels of row `y`, which must be below `height`.
    [[nodiscard]] std::span<const std::uint8_t> row(std::size_t y) const noexcept {
        return std::span<const std::uint8_t>(pixels).subspan(y * width * channels, width * channels);
    }

    /// Continues a hash of samples: see dataset_fingerprint().
    [[nodiscard]] std::uint64_t fingerprint(std::uint64_t hash) const noexcept {
        return detail::fnv1a({reinterpret_cast<const char*>(pixels.data()), pixels.size()}, hash);
    }

    friend bool operator==(const Image&, const Image&) = default;
};

}  // namespace DPTK_NAMESPACE
