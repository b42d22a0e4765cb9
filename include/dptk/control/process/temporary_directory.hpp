/// A private directory for the files of one run, in TMPDIR or /tmp. It is removed with the files in it.
#pragma once

#include <string>
#include <string_view>

#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE::detail {

/// Removes a directory and the files in it, but no further directories.
void remove_directory(const char* path) noexcept;

class TemporaryDirectory {
  public:
    /// The name begins with `prefix`. Throws BackendError where it cannot be made.
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
#include "dptk/core/error.hpp"
#endif
