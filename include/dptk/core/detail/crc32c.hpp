/// Checksums of 32 bits: CRC-32C, which TensorBoard's files have, and CRC-32, which PNG files have. See
/// RFC 3720, B.4, and RFC 2083, 15.
#pragma once

#include <cstdint>
#include <string_view>

#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE::detail {

/// Returns the CRC-32C (Castagnoli) of bytes that follow others whose CRC-32C is `before`.
[[nodiscard]] std::uint32_t crc32c(std::string_view bytes, std::uint32_t before = 0) noexcept;

/// Returns the CRC-32 of zlib, gzip and PNG, of bytes that follow others whose CRC-32 is `before`.
[[nodiscard]] std::uint32_t crc32(std::string_view bytes, std::uint32_t before = 0) noexcept;

/// Returns the CRC-32C as TensorFlow's record files store it: rotated, plus a constant. See
/// https://www.tensorflow.org/tutorials/load_data/tfrecord, "TFRecords format details".
[[nodiscard]] std::uint32_t masked_crc32c(std::string_view bytes) noexcept;

}  // namespace DPTK_NAMESPACE::detail

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/core/detail/crc32c.ipp"
#endif
