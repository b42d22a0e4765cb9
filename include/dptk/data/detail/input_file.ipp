#pragma once

#include "dptk/data/detail/input_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "dptk/core/detail/errno_text.hpp"
#include "dptk/core/detail/text.hpp"
#include "dptk/core/error.hpp"

namespace DPTK_NAMESPACE::detail {

DPTK_INLINE void throw_not_readable(const std::filesystem::path& path, std::size_t offset,
                                    std::string_view reason) {
    throw BackendError(text(path.string(), ": byte ", offset, ": expected a readable file, found: ", reason));
}

DPTK_INLINE InputFile::InputFile(std::filesystem::path path)
    : path_(std::move(path)), file_(::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {
    struct stat status {};
    if (!file_.is_open() || ::fstat(file_.number(), &status) != 0)
        throw_not_readable(path_, 0, errno_text(errno));
    if (S_ISDIR(status.st_mode)) throw_not_readable(path_, 0, "a folder");
    if (!S_ISREG(status.st_mode)) throw_not_readable(path_, 0, "no regular file");
    size_ = static_cast<std::size_t>(status.st_size);
}

DPTK_INLINE std::size_t InputFile::read(void* to, std::size_t bytes, std::size_t offset) const {
    std::size_t done = 0;
    while (done < bytes) {
        const ssize_t got = ::pread(file_.number(), static_cast<std::byte*>(to) + done, bytes - done,
                                    static_cast<off_t>(offset + done));
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) throw_not_readable(path_, offset + done, errno_text(errno));
        if (got == 0) break;
        done += static_cast<std::size_t>(got);
    }
    return done;
}

DPTK_INLINE std::vector<std::byte> file_bytes(const std::filesystem::path& path) {
    const InputFile file(path);
    std::vector<std::byte> bytes(file.size());
    bytes.resize(file.read(bytes.data(), bytes.size(), 0));  // fewer if the file has become shorter
    return bytes;
}

DPTK_INLINE std::string file_text(const std::filesystem::path& path) {
    const std::vector<std::byte> bytes = file_bytes(path);
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace DPTK_NAMESPACE::detail
