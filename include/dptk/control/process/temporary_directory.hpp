/// Temporary directory: a private directory in TMPDIR, or /tmp, that is removed together with its files.
#pragma once

#include <string>
#include <string_view>

#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE::detail {

/// Removes a directory and the files in it. Does not remove subdirectories.
void remove_directory(const char* path) noexcept;

class TemporaryDirectory {
  public:
    /// Creates a directory whose name begins with `prefix`. Throws BackendError if that fails.
    explicit TemporaryDirectory(std::string_view prefix);

    TemporaryDirectory(const TemporaryDirectory&) = delete;
    TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;
    ~TemporaryDirectory();

    [[nodiscard]] const std::string& path() const noexcept { return path_; }

  private:
    std::string path_;
};

}  // namespace DPTK_NAMESPACE::detail

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/control/process/temporary_directory.ipp"
#endif
