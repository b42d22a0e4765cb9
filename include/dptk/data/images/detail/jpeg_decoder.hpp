/// decode_jpeg(), which decodes JPEG with libjpeg-turbo.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

#include "dptk/core/config.hpp"
#include "dptk/data/images/detail/decoded_image.hpp"

namespace DPTK_NAMESPACE::detail {

/// Returns an image with three channels. Throws FormatError with `name` and the offset.
[[nodiscard]] DecodedImage decode_jpeg(std::span<const std::byte> bytes, std::string_view name,
                                       std::size_t max_pixels);

}  // namespace DPTK_NAMESPACE::detail

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/data/images/detail/jpeg_decoder.ipp"
#endif
