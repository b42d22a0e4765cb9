/// GzipFile, a file that may be compressed with gzip, for readers of file formats. Needs zlib.
#pragma once

#if !__has_include(<zlib.h>)
#error "dptk's readers need zlib: install zlib1g-dev (Debian, Ubuntu) or zlib-devel (Fedora)."
#endif

#include <zlib.h>

#include <cstddef>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE::detail {

/// A file that zlib decompresses if it starts with gzip's magic number, and reads unchanged otherwise.
class GzipFile {
  public:
    /// Throws BackendError if the file cannot be opened, or is no regular file.
    explicit GzipFile(const std::filesystem::path& path);

    /// Returns the offset of the next byte in the decompressed data.
    [[nodiscard]] std::size_t offset() const { return static_cast<std::size_t>(gztell(file_.get())); }

    /// Fills `out` up to the end of the file, and returns the number of bytes read. Throws BackendError if
    /// the file cannot be read, and FormatError if it cannot be decompressed.
    [[nodiscard]] std::size_t read(std::span<std::byte> out);

    /// Returns the next `count` bytes. Allocates memory as bytes arrive, since `count` may come from a
    /// damaged file. Throws FormatError if the file has fewer.
    [[nodiscard]] std::vector<std::byte> read_exactly(std::size_t count);

    /// Returns all bytes up to the end of the file.
    [[nodiscard]] std::vector<std::byte> read_all();

    /// Throws FormatError unless the file ends here. Also makes zlib verify gzip's checksum.
    void expect_end();

    /// Throws FormatError with the path and the offset.
    [[noreturn]] void fail(std::size_t offset, std::string_view expected, std::string_view found) const;

  private:
    /// Called after a short read. Throws as read() if an error, not the end of the file, caused it.
    void check_stream() const;

    /// Appends up to `count` bytes. Returns whether there were as many.
    [[nodiscard]] bool append(std::vector<std::byte>& bytes, std::size_t count);

    struct Close {
        void operator()(gzFile file) const noexcept { gzclose(file); }
    };

    std::string path_;
    std::unique_ptr<std::remove_pointer_t<gzFile>, Close> file_;
};

}  // namespace DPTK_NAMESPACE::detail

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/data/readers/detail/gzip_file.ipp"
#endif
