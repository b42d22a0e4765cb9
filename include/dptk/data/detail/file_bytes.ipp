#pragma once

#include "dptk/data/detail/file_bytes.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string_view>

#include "dptk/control/net/socket.hpp"
#include "dptk/core/detail/text.hpp"
#include "dptk/core/error.hpp"

namespace DPTK_NAMESPACE::detail {

DPTK_INLINE std::vector<std::byte> file_bytes(const std::filesystem::path& path) {
    const auto fail = [&](std::size_t offset, std::string_view found) {
        throw FormatError(
            text(path.string(), ": byte ", offset, ": expected a readable file, found: ", found));
    };
    const FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    struct stat status {};
    if (!file.is_open() || fstat(file.number(), &status) != 0) fail(0, errno_text(errno));
    if (S_ISDIR(status.st_mode)) fail(0, "a folder");
    if (!S_ISREG(status.st_mode)) fail(0, "no regular file");
    std::vector<std::byte> bytes(static_cast<std::size_t>(status.st_size));
    std::size_t filled = 0;
    while (filled < bytes.size()) {
        const ssize_t got = ::read(file.number(), bytes.data() + filled, bytes.size() - filled);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) fail(filled, errno_text(errno));
        if (got == 0) break;  // the file has become shorter
        filled += static_cast<std::size_t>(got);
    }
    bytes.resize(filled);
    return bytes;
}

}  // namespace DPTK_NAMESPACE::detail
