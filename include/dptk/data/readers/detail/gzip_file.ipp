#pragma once

#include "dptk/data/readers/detail/gzip_file.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <new>

#include "dptk/core/detail/errno_text.hpp"
#include "dptk/core/detail/text.hpp"
#include "dptk/core/error.hpp"
#include "dptk/data/detail/input_file.hpp"

namespace DPTK_NAMESPACE::detail {

DPTK_INLINE GzipFile::GzipFile(const std::filesystem::path& path) : path_(path.string()) {
    const InputFile file(path);
    const int own = ::fcntl(file.number(), F_DUPFD_CLOEXEC, 0);  // gzclose() closes it
    if (own < 0) throw_not_readable(path_, 0, errno_text(errno));
    file_.reset(gzdopen(own, "rb"));
    if (file_) return;
    ::close(own);
    throw std::bad_alloc();
}

DPTK_INLINE std::size_t GzipFile::read(std::span<std::byte> out) {
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

DPTK_INLINE std::vector<std::byte> GzipFile::read_exactly(std::size_t count) {
    std::vector<std::byte> bytes;
    if (!append(bytes, count))
        fail(offset(), text(count, " bytes of data"), text("the end of the file after ", bytes.size()));
    return bytes;
}

DPTK_INLINE std::vector<std::byte> GzipFile::read_all() {
    std::vector<std::byte> bytes;
    while (append(bytes, std::size_t{1} << 20)) {
    }
    return bytes;
}

DPTK_INLINE bool GzipFile::append(std::vector<std::byte>& bytes, std::size_t count) {
    constexpr std::size_t first_piece = 1U << 16;
    const std::size_t last = bytes.size() + count;
    while (bytes.size() < last) {
        const std::size_t before = bytes.size();
        const std::size_t piece = std::min(last - before, std::max(before, first_piece));
        bytes.resize(before + piece);
        const std::size_t got = read(std::span(bytes).subspan(before));
        bytes.resize(before + got);
        if (got < piece) return false;
    }
    return true;
}

DPTK_INLINE void GzipFile::expect_end() {
    const std::size_t end = offset();
    std::byte extra{};
    if (read({&extra, 1}) != 0) fail(end, "the end of the file", "more data");
}

DPTK_INLINE void GzipFile::fail(std::size_t offset, std::string_view expected, std::string_view found) const {
    throw FormatError(text(path_, ": byte ", offset, ": expected ", expected, ", found ", found));
}

DPTK_INLINE void GzipFile::check_stream() const {
    const int error = errno;
    int code = Z_OK;
    std::string_view message = gzerror(file_.get(), &code);
    if (code == Z_OK) return;
    if (code == Z_ERRNO) throw_not_readable(path_, offset(), errno_text(error));
    if (code == Z_MEM_ERROR) throw std::bad_alloc();
    // zlib's message begins with a name that it gives the file.
    message.remove_prefix(message.starts_with('<') ? message.find(": ") + 2 : 0);
    fail(offset(), "intact gzip data", message);
}

}  // namespace DPTK_NAMESPACE::detail
