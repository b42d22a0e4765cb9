#pragma once

#include "dptk/data/readers/idx.hpp"

#include <array>
#include <bit>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string_view>

#include "dptk/core/detail/algorithms.hpp"
#include "dptk/core/detail/text.hpp"
#include "dptk/data/readers/detail/gzip_file.hpp"

namespace DPTK_NAMESPACE::detail {

[[nodiscard]] constexpr std::optional<DType> idx_dtype(std::uint8_t code) noexcept {
    switch (code) {
        case 0x08: return DType::u8;
        case 0x09: return DType::i8;
        case 0x0B: return DType::i16;
        case 0x0C: return DType::i32;
        case 0x0D: return DType::f32;
        case 0x0E: return DType::f64;
        default: return std::nullopt;
    }
}

/// Reads four bytes of the header. `meaning` describes them in the error message for a file that is too
/// short.
[[nodiscard]] DPTK_INLINE std::array<std::uint8_t, 4> read_idx_word(GzipFile& file,
                                                                    std::string_view meaning) {
    std::array<std::uint8_t, 4> word{};
    const std::size_t got = file.read(std::as_writable_bytes(std::span(word)));
    if (got < word.size()) {
        file.fail(file.offset(), text("4 bytes with ", meaning), text("the end of the file after ", got));
    }
    return word;
}

/// Reads dtype and shape, without the elements.
[[nodiscard]] DPTK_INLINE FileArray read_idx_header(GzipFile& file) {
    const auto magic = read_idx_word(file, "IDX's magic number");
    if (magic[0] != 0 || magic[1] != 0) {
        file.fail(0, "IDX's magic number, which starts with bytes 0 0", text(magic[0], " ", magic[1]));
    }
    const std::optional<DType> dtype = idx_dtype(magic[2]);
    if (!dtype) file.fail(2, "IDX's type code 8, 9, 11, 12, 13 or 14", text(magic[2]));
    if (magic[3] == 0) file.fail(3, "at least 1 dimension", "0");

    FileArray array{.dtype = *dtype, .shape = {}, .bytes = {}};
    std::size_t bytes = dtype_size(*dtype);
    for (unsigned i = 0; i < magic[3]; ++i) {
        const std::size_t offset = file.offset();
        std::size_t dimension = 0;
        for (const std::uint8_t byte : read_idx_word(file, text("dimension ", i))) {
            dimension = dimension << 8 | byte;
        }
        array.shape.push_back(dimension);
        if (dimension != 0 && bytes > std::numeric_limits<std::size_t>::max() / dimension) {
            file.fail(offset, "dimensions whose product fits 64 bits", shape_text(array.shape));
        }
        bytes *= dimension;
    }
    return array;
}

/// Converts big-endian elements of `size` bytes each to the host's byte order.
DPTK_INLINE void swap_big_endian(std::span<std::byte> bytes, std::size_t size) {
    if constexpr (std::endian::native == std::endian::little) {
        for (std::size_t i = 0; size > 1 && i < bytes.size(); i += size) {
            detail::reverse(bytes.subspan(i, size));
        }
    }
}

}  // namespace DPTK_NAMESPACE::detail

namespace DPTK_NAMESPACE {

DPTK_INLINE FileArray read_idx(const std::filesystem::path& path) {
    detail::GzipFile file(path);
    FileArray array = detail::read_idx_header(file);
    std::size_t count = dtype_size(array.dtype);
    for (const std::size_t dimension : array.shape) count *= dimension;
    array.bytes = file.read_exactly(count);

    file.expect_end();
    detail::swap_big_endian(array.bytes, dtype_size(array.dtype));
    return array;
}

}  // namespace DPTK_NAMESPACE
