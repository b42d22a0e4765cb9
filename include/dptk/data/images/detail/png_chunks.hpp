/// PngChunks, the parts of a PNG file that its pixels depend on. Pillow reads PNG files with a parser of its
/// own that accepts other damage than libpng does; this is Pillow's choice.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE::detail {

/// Finds the header, the palette and the compressed rows. The other chunks only have to be as Pillow
/// requires.
class PngChunks {
  public:
    /// Throws FormatError with `name` and the offset. Refers to `bytes`, which must begin with PNG's
    /// signature.
    PngChunks(std::span<const std::byte> bytes, std::string_view name);

    /// Returns the parts of an intact file with the same pixels, whose checksum of the rows is not computed.
    [[nodiscard]] std::vector<std::string_view> intact_file() const;

    /// Returns the number of colors of the palette.
    [[nodiscard]] int colors() const noexcept { return static_cast<int>(palette_.size() / 3); }

    /// Returns what is unusual about the file, the first thing that was found; empty if nothing is.
    [[nodiscard]] const std::string& warning() const noexcept { return warning_; }

    /// Throws FormatError for something that was found in the file at `offset`.
    [[noreturn]] void fail(std::size_t offset, std::string_view found) const;

    /// Returns the offset in the file of a part, or 0 if the part is not from the file.
    [[nodiscard]] std::size_t offset_of(std::string_view part) const noexcept;

  private:
    struct Chunk {
        std::string_view type, data;
        bool is_intact = false;
    };

    [[nodiscard]] bool read_chunk(Chunk& chunk);
    void read_header(std::string_view data);
    void check_length(const Chunk& chunk, std::size_t end) const;
    void read_before_rows();
    void read_after_rows();
    void warn(std::string_view text);

    std::string_view bytes_;
    std::string_view name_;
    std::size_t offset_ = 8;  // after the signature
    std::string head_;        // the beginning of intact_file(), before the rows
    std::string header_;
    std::string_view palette_;
    std::vector<std::string_view> rows_;
    std::string warning_;
};

}  // namespace DPTK_NAMESPACE::detail

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/data/images/detail/png_chunks.ipp"
#endif
