/// Reads JPEG and PNG files. Needs libjpeg-turbo and libpng.
#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "dptk/core/config.hpp"
#include "dptk/data/image.hpp"

namespace DPTK_NAMESPACE {

/// What a decoder accepts.
struct DecodeOptions {
    /// Images with more pixels are an error, since a small file may hold the size of a very large image. The
    /// default is the size from which Pillow raises DecompressionBombError.
    std::size_t max_pixels = 178'956'970;
    /// Is called with what is unusual about an image that has all of its pixels, at most once for each image.
    std::function<void(const std::string& warning)> on_warning = {};
};

/// Decodes a JPEG or PNG image, which its first bytes tell apart, to three channels: red, green and blue. The
/// pixels are those of Pillow's `Image.open(file).convert("RGB")`: EXIF's orientation and color profiles are
/// not applied, transparency is dropped, and 16-bit gray values above 255 become 255. An image is damaged if
/// Pillow refuses it, or if it has fewer pixels than its size says, which Pillow may fill up. Throws
/// FormatError with `name` and the offset if the bytes are damaged or of another format, or the image is too
/// large.
[[nodiscard]] Image decode_image(std::span<const std::byte> bytes, std::string_view name,
                                 const DecodeOptions& options = {});

/// Reads an image file. Throws BackendError if the file cannot be read, and what decode_image() throws.
[[nodiscard]] Image read_image(const std::filesystem::path& path, const DecodeOptions& options = {});

}  // namespace DPTK_NAMESPACE

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/data/images/image_decoder.ipp"
#endif
