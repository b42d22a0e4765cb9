/// ReplacementFile, a file that replaces another one once it is complete and on the disk.
#pragma once

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <filesystem>
#include <string>

#include "dptk/control/net/socket.hpp"
#include "dptk/core/config.hpp"
#include "dptk/core/detail/errno_text.hpp"
#include "dptk/core/detail/text.hpp"
#include "dptk/core/error.hpp"

namespace DPTK_NAMESPACE::detail {

/// Writes a file beside `path`, and renames it to `path`. Throws BackendError.
class ReplacementFile {
  public:
    explicit ReplacementFile(const std::filesystem::path& path)
        : path_(path),
          aside_(path.string() + ".tmp-" + std::to_string(::getpid())),
          file_(::open(aside_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666)) {
        if (!file_.is_open()) fail();
    }
    ~ReplacementFile() {
        if (!is_complete_) ::unlink(aside_.c_str());
    }
    ReplacementFile(const ReplacementFile&) = delete;
    ReplacementFile& operator=(const ReplacementFile&) = delete;

    void write(const void* data, std::size_t bytes) {
        std::size_t done = 0;
        while (done < bytes) {
            const ssize_t written =
                ::write(file_.number(), static_cast<const std::byte*>(data) + done, bytes - done);
            if (written < 0 && errno == EINTR) continue;
            if (written < 0) fail();
            done += static_cast<std::size_t>(written);
        }
    }

    void complete() {
        if (::fsync(file_.number()) != 0 || std::rename(aside_.c_str(), path_.c_str()) != 0) fail();
        is_complete_ = true;
    }

  private:
    [[noreturn]] void fail() const {
        throw BackendError(text(path_.string(), ": cannot be written: ", errno_text(errno)));
    }

    std::filesystem::path path_;
    std::string aside_;
    FileDescriptor file_;
    bool is_complete_ = false;
};

}  // namespace DPTK_NAMESPACE::detail
