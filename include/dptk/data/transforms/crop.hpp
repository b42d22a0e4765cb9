/// Crops and mirror images.
#pragma once

#include <cstddef>
#include <string_view>

#include "dptk/core/config.hpp"
#include "dptk/data/image.hpp"

namespace DPTK_NAMESPACE {

/// A rectangle of an image, in pixels.
struct CropWindow {
    std::size_t left = 0;    ///< The first column.
    std::size_t top = 0;     ///< The first row.
    std::size_t width = 0;   ///< The number of columns.
    std::size_t height = 0;  ///< The number of rows.
};

namespace detail {

/// Throws ArgumentError, in which `function` is named, if the window is not within the image.
void check_within(std::string_view function, const Image& image, const CropWindow& window);

}  // namespace detail

/// Returns the part of an image. Throws ArgumentError if the window is not within the image.
[[nodiscard]] Image crop(const Image& image, const CropWindow& window);

/// Returns the image with `border` black pixels on each side.
[[nodiscard]] Image pad(const Image& image, std::size_t border);

/// Returns the part of the given size around the center of the image, as torchvision's center_crop() does. If
/// the image is smaller, it is surrounded with black pixels.
[[nodiscard]] Image center_crop(const Image& image, std::size_t width, std::size_t height);

/// Returns the image with left and right exchanged.
[[nodiscard]] Image flip_horizontally(const Image& image);

}  // namespace DPTK_NAMESPACE

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/data/transforms/crop.ipp"
#endif
