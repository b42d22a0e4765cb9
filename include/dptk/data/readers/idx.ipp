#pragma once

#include "dptk/data/readers/idx.hpp"

#include <zlib.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

#include "dptk/core/detail/algorithms.hpp"
#include "dptk/core/detail/text.hpp"
#include "dptk/core/error.hpp"

namespace DPTK_NAMESPACE::detail {

/// A file that zlib decompresses if it starts with gzip's magic number, and reads unchanged otherwise.
class GzipFile {
  public:
    explicit GzipFile(const std::filesystem::path& path) : path_(path.string()) {
        errno = 0;
        file_.reset(gzopen(path_.c_str(), "rb"));
        if (!file_) {
            throw FormatError(
                text(path_, ": byte 0: expected a readable file, found: ", std::strerror(errno)));
        }
    }

    /// Returns the offset of the next byte in the decompressed data.
    [[nodiscard]] std::size_t offset() const { return static_cast<std::size_t>(gztell(file_.get())); }

    /// Fills `out` up to the end of the file, and returns the number of bytes read. Throws FormatError if
    /// the file cannot be read or decompressed.
    [[nodiscard]] std::size_t read(std::span<std::byte> out) {
        std::size_t filled = 0;
        while (filled < out.size()) {
            constexpr std::size_t most_at_once = 1U << 30;  // gzread counts in unsigned int
            const std::size_t wanted = std::min(out.size() - filled, most_at_once);
            const int got = gzread(file_.get(), out.data() + filled, static_cast<unsigned>(wanted));
            if (got > 0) filled += static_cast<std::size_t>(got);
            if (got < 0 || static_cast<std::size_t>(got) < wanted) {
                check_stream();
                break;
            }
        }
        return filled;
    }

    [[noreturn]] void fail(std::size_t offset, std::string_view expected, std::string_view found) const {
        throw FormatError(text(path_, ": byte ", offset, ": expected ", expected, ", found ", found));
    }

  private:
    /// Called after a short read. Throws FormatError if an error, not the end of the file, caused it.
    void check_stream() const {
        int code = Z_OK;
        std::string_view message = gzerror(file_.get(), &code);
        if (code == Z_OK) return;
        // zlib's message may begin with the path, which fail() adds.
        if (message.starts_with(path_ + ": ")) message.remove_prefix(path_.size() + 2);
        fail(offset(), code == Z_ERRNO ? "readable data" : "intact gzip data", message);
    }

    struct Close {
        void operator()(gzFile file) const noexcept { gzclose(file); }
    };

    std::string path_;
    std::unique_ptr<std::remove_pointer_t<gzFile>, Close> file_;
};

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
[[nodiscard]] DPTK_INLINE IdxArray read_idx_header(GzipFile& file) {
    const auto magic = read_idx_word(file, "IDX's magic number");
    if (magic[0] != 0 || magic[1] != 0) {
        file.fail(0, "IDX's magic number, which starts with bytes 0 0", text(magic[0], " ", magic[1]));
    }
    const std::optional<DType> dtype = idx_dtype(magic[2]);
    if (!dtype) file.fail(2, "IDX's type code 8, 9, 11, 12, 13 or 14", text(magic[2]));
    if (magic[3] == 0) file.fail(3, "at least 1 dimension", "0");

    IdxArray array{.dtype = *dtype, .shape = {}, .bytes = {}};
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

/// Reads `count` bytes in pieces whose size grows with the data read so far.
[[nodiscard]] DPTK_INLINE std::vector<std::byte> read_idx_data(GzipFile& file, std::size_t count) {
    constexpr std::size_t first_piece = 1U << 16;
    std::vector<std::byte> bytes;
    while (bytes.size() < count) {
        const std::size_t before = bytes.size();
        const std::size_t piece = std::min(count - before, std::max(before, first_piece));
        bytes.resize(before + piece);
        const std::size_t got = file.read(std::span(bytes).subspan(before));
        if (got < piece) {
            file.fail(file.offset(), text(count, " bytes of data"),
                      text("the end of the file after ", before + got));
        }
    }
    return bytes;
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

DPTK_INLINE IdxArray read_idx(const std::filesystem::path& path) {
    detail::GzipFile file(path);
    IdxArray array = detail::read_idx_header(file);
    std::size_t count = dtype_size(array.dtype);
    for (const std::size_t dimension : array.shape) count *= dimension;
    array.bytes = detail::read_idx_data(file, count);

    const std::size_t end = file.offset();
    std::byte extra{};
    if (file.read({&extra, 1}) != 0) {  // this read also makes zlib verify gzip's checksum
        file.fail(end, "the end of the file", "more data");
    }
    detail::swap_big_endian(array.bytes, dtype_size(array.dtype));
    return array;
}

}  // namespace DPTK_NAMESPACE
