#pragma once

#include "dptk/data/images/image_decoder.hpp"

#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "dptk/core/detail/text.hpp"
#include "dptk/core/error.hpp"
#include "dptk/data/detail/input_file.hpp"
#include "dptk/data/images/detail/jpeg_decoder.hpp"
#include "dptk/data/images/detail/png_decoder.hpp"

namespace DPTK_NAMESPACE {

DPTK_INLINE Image decode_image(std::span<const std::byte> bytes, std::string_view name,
                               const DecodeOptions& options) {
    const auto begins_with = [&](std::string_view magic) {
        return bytes.size() >= magic.size() && std::memcmp(bytes.data(), magic.data(), magic.size()) == 0;
    };
    const bool is_jpeg = begins_with("\xff\xd8\xff");
    if (!is_jpeg && !begins_with("\x89PNG\r\n\x1a\n"))
        throw FormatError(detail::text(name, ": byte 0: expected a JPEG or PNG image, found ",
                                       bytes.empty() ? "an empty file" : "another format"));
    detail::DecodedImage decoded = is_jpeg ? detail::decode_jpeg(bytes, name, options.max_pixels)
                                           : detail::decode_png(bytes, name, options.max_pixels);
    if (options.on_warning && !decoded.warning.empty()) options.on_warning(decoded.warning);
    return std::move(decoded.image);
}

DPTK_INLINE Image read_image(const std::filesystem::path& path, const DecodeOptions& options) {
    return decode_image(detail::file_bytes(path), path.string(), options);
}

}  // namespace DPTK_NAMESPACE
