#pragma once

#include "dptk/data/images/detail/png_chunks.hpp"

#include <algorithm>
#include <functional>

#include "dptk/core/detail/crc32c.hpp"
#include "dptk/core/detail/text.hpp"
#include "dptk/core/error.hpp"

namespace DPTK_NAMESPACE::detail {

enum PngColor : char { png_gray = 0, png_rgb = 2, png_palette = 3, png_gray_alpha = 4 };

DPTK_INLINE std::uint32_t big_endian_32(std::string_view bytes) {
    std::uint32_t number = 0;
    for (const char byte : bytes.substr(0, 4)) number = number << 8 | static_cast<unsigned char>(byte);
    return number;
}

DPTK_INLINE std::string big_endian_bytes(std::size_t number) {
    std::string bytes;
    for (unsigned shift = 32; shift > 0; shift -= 8) bytes += static_cast<char>(number >> (shift - 8) & 0xff);
    return bytes;
}

DPTK_INLINE std::string png_chunk(std::string_view type, std::string_view data) {
    return text(big_endian_bytes(data.size()), type, data, big_endian_bytes(crc32(data, crc32(type))));
}

DPTK_INLINE PngChunks::PngChunks(std::span<const std::byte> bytes, std::string_view name)
    : bytes_(reinterpret_cast<const char*>(bytes.data()), bytes.size()), name_(name) {
    read_before_rows();
    read_after_rows();
    head_ = text(bytes_.substr(0, 8), png_chunk("IHDR", header_));
    const char color = header_[9];
    if (color == png_palette) {
        const std::size_t colors = palette_.size() / 3, most = std::size_t{1} << std::min<int>(header_[8], 8);
        if (colors == 0 || colors > 256) fail(offset_of(palette_), text("a palette of ", colors, " colors"));
        if (palette_.size() % 3 != 0 || colors > most) warn("PLTE: another length than that of colors");
        head_ += png_chunk("PLTE", palette_.substr(0, 3 * std::min(colors, most)));
    } else if (!palette_.empty() && (color == png_gray || color == png_gray_alpha)) {
        warn("PLTE: a palette in a gray image");
    }
    std::size_t size = 0;
    for (const std::string_view part : rows_) size += part.size();
    head_ += big_endian_bytes(size) + "IDAT";
}

DPTK_INLINE std::vector<std::string_view> PngChunks::intact_file() const {
    static constexpr std::string_view tail("\0\0\0\0\0\0\0\0IEND\xae\x42\x60\x82", 16);
    std::vector<std::string_view> parts{head_};
    parts.insert(parts.end(), rows_.begin(), rows_.end());
    parts.push_back(tail);
    return parts;
}

DPTK_INLINE std::size_t PngChunks::offset_of(std::string_view part) const noexcept {
    const std::less_equal<const char*> before;
    const bool is_inside =
        before(bytes_.data(), part.data()) && before(part.data(), bytes_.data() + bytes_.size());
    return is_inside ? static_cast<std::size_t>(part.data() - bytes_.data()) : 0;
}

DPTK_INLINE void PngChunks::fail(std::size_t offset, std::string_view found) const {
    throw FormatError(text(name_, ": byte ", offset, ": expected an intact PNG image, found: ", found));
}

DPTK_INLINE void PngChunks::warn(std::string_view text) {
    if (warning_.empty()) warning_ = text;
}

/// In every locale.
[[nodiscard]] constexpr bool is_ascii_upper(char c) noexcept {
    return c >= 'A' && c <= 'Z';
}

/// Reads the next chunk, whose data may be cut off by the end of the file. Returns false if no chunk follows.
DPTK_INLINE bool PngChunks::read_chunk(Chunk& chunk) {
    if (bytes_.size() - offset_ < 8) return false;
    chunk.type = bytes_.substr(offset_ + 4, 4);
    const auto is_in_name = [](char c) {
        return (c >= 'a' && c <= 'z') || is_ascii_upper(c) || (c >= '0' && c <= '9') || c == '_';
    };
    if (!std::all_of(chunk.type.begin(), chunk.type.end(), is_in_name)) return false;
    const std::size_t size = big_endian_32(bytes_.substr(offset_));
    chunk.data = bytes_.substr(offset_ + 8, size);
    const std::size_t end = offset_ + 8 + chunk.data.size();
    const std::string_view sum = bytes_.substr(end, 4);
    chunk.is_intact = chunk.data.size() == size && sum.size() == 4 &&
                      big_endian_32(sum) == crc32(chunk.data, crc32(chunk.type));
    offset_ = end + sum.size();
    if (chunk.data.size() < size && chunk.type != "IDAT") fail(bytes_.size(), "the end of the file");
    return true;
}

DPTK_INLINE void PngChunks::read_header(std::string_view data) {
    if (data.size() < 13) fail(offset_, "IHDR: a length below 13");
    if (data[11] != 0) fail(offset_, "IHDR: an unknown filter method");
    if (!header_.empty()) warn("IHDR: a second header");
    if (data.size() > 13 || data[10] != 0 || (data[12] & ~1) != 0) warn("IHDR: unknown values");
    header_ = data.substr(0, 13);
    header_[10] = 0;  // the compression method, which Pillow does not read
    header_[12] = header_[12] != 0 ? 1 : 0;
}

/// Throws if Pillow refuses a chunk for its length.
DPTK_INLINE void PngChunks::check_length(const Chunk& chunk, std::size_t end) const {
    struct {
        std::string_view type;
        std::size_t least;
    } static constexpr lengths[] = {{"gAMA", 4}, {"cHRM", 32}, {"sRGB", 1},
                                    {"pHYs", 9}, {"acTL", 8},  {"fcTL", 26}};
    std::size_t least = 0;
    for (const auto& one : lengths)
        if (one.type == chunk.type) least = one.least;
    if (chunk.type == "tRNS" && !header_.empty() && header_[9] == png_gray) least = 2;
    if (chunk.type == "tRNS" && !header_.empty() && header_[9] == png_rgb) least = 6;
    if (chunk.data.size() < least) fail(end, text(chunk.type, ": a length below ", least));
}

DPTK_INLINE void PngChunks::read_before_rows() {
    std::size_t transparencies = 0;
    for (Chunk chunk; rows_.empty();) {
        if (!read_chunk(chunk)) fail(offset_, "no further chunk, and no pixels");
        if (chunk.type == "IEND") fail(offset_, "no pixels");
        if (chunk.type == "IDAT") {
            rows_.push_back(chunk.data);
            if (!chunk.is_intact) warn("IDAT: CRC error");
            break;
        }
        if (!chunk.is_intact) fail(offset_, text(chunk.type, ": CRC error"));
        if (chunk.type == "IHDR") {
            read_header(chunk.data);
        } else if (chunk.type == "PLTE") {
            palette_ = chunk.data;
        } else if (is_ascii_upper(chunk.type[0])) {
            warn(text(chunk.type, ": an unknown chunk"));
        }
        if (chunk.type == "tRNS") transparencies = chunk.data.size();
        check_length(chunk, offset_);
    }
    if (header_.empty()) fail(offset_, "no header");
    if (header_[9] == png_palette && transparencies > palette_.size() / 3)
        warn("tRNS: more transparencies than colors");
}

DPTK_INLINE void PngChunks::read_after_rows() {
    bool are_rows = true;
    for (Chunk chunk; read_chunk(chunk);) {
        if (!chunk.is_intact) warn(text(chunk.type, ": CRC error"));
        if (chunk.type == "IEND") return;
        are_rows = are_rows && chunk.type == "IDAT";
        if (are_rows) rows_.push_back(chunk.data);
        check_length(chunk, offset_);
    }
    warn("no IEND chunk");
}

}  // namespace DPTK_NAMESPACE::detail
