#pragma once

#include "dptk/train/detail/png_encoder.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "dptk/core/detail/crc32c.hpp"

namespace DPTK_NAMESPACE::detail {

DPTK_INLINE void append_big_endian(std::string& out, std::uint32_t number) {
    for (int shift = 24; shift >= 0; shift -= 8) out += static_cast<char>(number >> shift);
}

DPTK_INLINE void append_png_chunk(std::string& out, std::string_view type, std::string_view data) {
    append_big_endian(out, static_cast<std::uint32_t>(data.size()));
    const std::size_t begin = out.size();
    out += type;
    out += data;
    append_big_endian(out, crc32(std::string_view(out).substr(begin)));
}

/// Returns the bytes in the zlib format (RFC 1950), in blocks that are not compressed (RFC 1951, 3.2.4).
[[nodiscard]] DPTK_INLINE std::string stored_zlib(std::string_view bytes) {
    std::string out = "\x78\x01";
    std::uint64_t low = 1, high = 0;  // the halves of the checksum Adler-32
    do {
        const std::string_view block = bytes.substr(0, 0xffff);
        bytes.remove_prefix(block.size());
        out += bytes.empty() ? '\1' : '\0';  // the last block?
        for (const std::size_t size : {block.size(), ~block.size()}) {
            out += static_cast<char>(size);
            out += static_cast<char>(size >> 8);
        }
        out += block;
        for (const char byte : block) {
            low += static_cast<unsigned char>(byte);
            high += low;
        }
        low %= 65521;
        high %= 65521;
    } while (!bytes.empty());
    append_big_endian(out, static_cast<std::uint32_t>(high << 16 | low));
    return out;
}

DPTK_INLINE std::string encode_png(const Image& image) {
    std::string rows;
    rows.reserve(image.pixels.size() + image.height);
    for (std::size_t y = 0; y < image.height; ++y) {
        rows += '\0';  // the row is not filtered
        const std::span<const std::uint8_t> row = image.row(y);
        rows.append(row.begin(), row.end());
    }
    std::string header;
    append_big_endian(header, static_cast<std::uint32_t>(image.width));
    append_big_endian(header, static_cast<std::uint32_t>(image.height));
    header += '\x08';  // bits of each value
    header += image.channels == 3 ? '\2' : '\0';
    header.append(3, '\0');  // compression, filters and interlacing: the only or first method of each
    std::string out = "\x89PNG\r\n\x1a\n";
    append_png_chunk(out, "IHDR", header);
    append_png_chunk(out, "IDAT", stored_zlib(rows));
    append_png_chunk(out, "IEND", "");
    return out;
}

}  // namespace DPTK_NAMESPACE::detail
