/// DecodedImage, what the image decoders return, and check_pixels(), their limit.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "dptk/core/config.hpp"
#include "dptk/core/detail/text.hpp"
#include "dptk/core/error.hpp"
#include "dptk/data/image.hpp"

namespace DPTK_NAMESPACE::detail {

/// An image, and what is unusual about its file; empty if nothing is.
struct DecodedImage {
    Image image;
    std::string warning;
};

/// Throws FormatError if an image of this size has no pixels, or more than `max_pixels`.
inline void check_pixels(std::size_t width, std::size_t height, std::size_t max_pixels, std::string_view name,
                         std::size_t offset) {
    if (width > 0 && height > 0 && width <= max_pixels / height) return;
    throw FormatError(text(name, ": byte ", offset, ": expected an image of 1 to ", max_pixels,
                           " pixels, found ", width, " x ", height));
}

}  // namespace DPTK_NAMESPACE::detail
