#pragma once

#include "dptk/data/readers/detail/gzip_file.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "dptk/core/detail/text.hpp"
#include "dptk/core/error.hpp"

namespace DPTK_NAMESPACE::detail {

DPTK_INLINE GzipFile::GzipFile(const std::filesystem::path& path) : path_(path.string()) {
    errno = 0;
    file_.reset(gzopen(path_.c_str(), "rb"));
    if (!file_)
        throw FormatError(text(path_, ": byte 0: expected a readable file, found: ", std::strerror(errno)));
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
    int code = Z_OK;
    std::string_view message = gzerror(file_.get(), &code);
    if (code == Z_OK) return;
    // zlib's message may begin with the path, which fail() adds.
    if (message.starts_with(path_ + ": ")) message.remove_prefix(path_.size() + 2);
    fail(offset(), code == Z_ERRNO ? "readable data" : "intact gzip data", message);
}

}  // namespace DPTK_NAMESPACE::detail
