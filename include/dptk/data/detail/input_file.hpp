/// InputFile, file_bytes() and file_text(), which read files. What the system cannot read is another error
/// than bytes that are not as expected: see BackendError and FormatError.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "dptk/control/net/socket.hpp"
#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE::detail {

/// A regular file that is open for reading.
class InputFile {
  public:
    /// Throws BackendError with the path if the file cannot be opened, or is no regular file.
    explicit InputFile(std::filesystem::path path);

    /// Returns the number of bytes that the file had when it was opened.
    [[nodiscard]] std::size_t size() const noexcept { return size_; }

    /// Reads bytes at an offset, and returns how many there are: fewer only at the end of the file. Throws
    /// BackendError with the path and the offset if they cannot be read.
    [[nodiscard]] std::size_t read(void* to, std::size_t bytes, std::size_t offset) const;

    /// Returns the number of its descriptor.
    [[nodiscard]] int number() const noexcept { return file_.number(); }

  private:
    std::filesystem::path path_;
    FileDescriptor file_;
    std::size_t size_ = 0;
};

/// Throws BackendError for a file that cannot be read from an offset on.
[[noreturn]] void throw_not_readable(const std::filesystem::path& path, std::size_t offset,
                                     std::string_view reason);

/// Returns the bytes of a file. Throws BackendError with the path if it cannot be read, or is no regular
/// file.
[[nodiscard]] std::vector<std::byte> file_bytes(const std::filesystem::path& path);

/// Returns them as a text.
[[nodiscard]] std::string file_text(const std::filesystem::path& path);

}  // namespace DPTK_NAMESPACE::detail

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/data/detail/input_file.ipp"
#endif
