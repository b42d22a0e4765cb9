#pragma once

#include "dptk/core/detail/crc32c.hpp"

#include <array>
#include <bit>

namespace DPTK_NAMESPACE::detail {

/// The change that each byte makes to a checksum.
using CrcTable = std::array<std::uint32_t, 256>;

/// Returns the table of a polynomial, whose lowest bit stands for the highest power.
[[nodiscard]] consteval CrcTable crc_table(std::uint32_t polynomial) {
    CrcTable table{};
    for (std::uint32_t byte = 0; byte < table.size(); ++byte) {
        table[byte] = byte;
        for (int bit = 0; bit < 8; ++bit)
            table[byte] = (table[byte] >> 1) ^ ((table[byte] & 1) != 0 ? polynomial : 0);
    }
    return table;
}

inline constexpr CrcTable crc32c_table = crc_table(0x82f63b78);
inline constexpr CrcTable crc32_table = crc_table(0xedb88320);

[[nodiscard]] DPTK_INLINE std::uint32_t crc_of(const CrcTable& table, std::string_view bytes,
                                               std::uint32_t before) noexcept {
    std::uint32_t crc = ~before;
    for (const char byte : bytes) crc = (crc >> 8) ^ table[(crc ^ static_cast<unsigned char>(byte)) & 0xff];
    return ~crc;
}

DPTK_INLINE std::uint32_t crc32c(std::string_view bytes, std::uint32_t before) noexcept {
    return crc_of(crc32c_table, bytes, before);
}

DPTK_INLINE std::uint32_t crc32(std::string_view bytes, std::uint32_t before) noexcept {
    return crc_of(crc32_table, bytes, before);
}

DPTK_INLINE std::uint32_t masked_crc32c(std::string_view bytes) noexcept {
    return std::rotr(crc32c(bytes), 15) + 0xa282ead8U;
}

}  // namespace DPTK_NAMESPACE::detail
