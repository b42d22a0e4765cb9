/// A private directory for the files of one run, in TMPDIR or /tmp. It is removed with the files in it.
#pragma once

#include <dirent.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>

#include "dptk/core/error.hpp"
#include "dptk/core/text.hpp"

namespace dptk {

/// Removes a directory and the files in it, but no further directories.
inline void remove_directory(const char* path) noexcept {
    if (DIR* const directory = opendir(path)) {
        while (const dirent* const entry = readdir(directory)) {
            unlinkat(dirfd(directory), entry->d_name, 0);
        }
        closedir(directory);
    }
    rmdir(path);
}

class TemporaryDirectory {
  public:
    /// The name begins with `prefix`. Throws BackendError where it cannot be made.
    explicit TemporaryDirectory(std::string_view prefix) {
        const char* const parent = std::getenv("TMPDIR");
        path_ = detail::text(parent != nullptr && *parent != '\0' ? parent : "/tmp", "/", prefix, "-XXXXXX");
        if (mkdtemp(path_.data()) == nullptr) {
            throw BackendError(detail::text("cannot make the temporary directory ", path_, ": ",
                                            std::strerror(errno), "; TMPDIR may name another place"));
        }
    }

    TemporaryDirectory(const TemporaryDirectory&) = delete;
    TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;
    ~TemporaryDirectory() { remove_directory(path_.c_str()); }

    [[nodiscard]] const std::string& path() const noexcept { return path_; }

  private:
    std::string path_;
};

}  // namespace dptk
