#pragma once

#include "dptk/weights/safetensors.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <utility>

#include "dptk/comm/algorithms/local_reduce.hpp"
#include "dptk/control/net/socket.hpp"
#include "dptk/core/detail/text.hpp"
#include "dptk/core/error.hpp"
#include "dptk/weights/detail/safetensors_header.hpp"

namespace DPTK_NAMESPACE {

struct SafetensorsFile::File {
    detail::FileDescriptor descriptor;

    /// Reads bytes at an offset. Returns how many there are.
    [[nodiscard]] std::size_t read(void* to, std::size_t bytes, std::size_t offset,
                                   const std::filesystem::path& path) const {
        std::size_t done = 0;
        while (done < bytes) {
            const ssize_t got = ::pread(descriptor.number(), static_cast<std::byte*>(to) + done, bytes - done,
                                        static_cast<off_t>(offset + done));
            if (got < 0 && errno == EINTR) continue;
            if (got < 0)
                detail::throw_bad_safetensors(path, offset + done,
                                              detail::text("cannot be read: ", detail::errno_text(errno)));
            if (got == 0) break;
            done += static_cast<std::size_t>(got);
        }
        return done;
    }
};

DPTK_INLINE SafetensorsFile::SafetensorsFile(std::filesystem::path path)
    : path_(std::move(path)),
      file_(std::make_unique<File>(
          detail::FileDescriptor(::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)))) {
    const auto fail = [&](std::size_t offset, std::string_view problem) {
        detail::throw_bad_safetensors(path_, offset, problem);
    };
    struct stat status {};
    if (!file_->descriptor.is_open() || fstat(file_->descriptor.number(), &status) != 0)
        fail(0, detail::text("expected a readable file, found: ", detail::errno_text(errno)));
    if (!S_ISREG(status.st_mode))
        fail(0, S_ISDIR(status.st_mode) ? "expected a readable file, found: a folder"
                                        : "expected a readable file, found: no regular file");
    const auto size = static_cast<std::size_t>(status.st_size);
    std::uint64_t length = 0;
    constexpr std::uint64_t longest = 100'000'000;
    if (file_->read(&length, sizeof length, 0, path_) < sizeof length)
        fail(size, "expected the length of a safetensors header, found the end of the file");
    std::array<char, 4> magic{};
    std::memcpy(magic.data(), &length, magic.size());
    if (magic[0] == 'P' && magic[1] == 'K')
        fail(0,
             "expected a safetensors file, found a ZIP archive, as torch.save() writes it (.pth): "
             "scripts/convert-weights converts it");
    if (length > longest || length > size - sizeof length)
        fail(0, detail::text("expected the length of a safetensors header, at most ", longest,
                             " and within the file, found ", length));
    std::string header(static_cast<std::size_t>(length), '\0');
    const std::size_t got = file_->read(header.data(), header.size(), sizeof length, path_);
    if (got < header.size()) fail(sizeof length + got, "the file ends within its header");
    detail::SafetensorsHeader parsed =
        detail::parse_safetensors_header(path_, header, size - sizeof length - header.size());
    metadata_ = std::move(parsed.metadata);
    entries_ = std::move(parsed.entries);
    for (std::size_t i = 0; i < entries_.size(); ++i) by_name_.emplace(entries_[i].name, i);
}

DPTK_INLINE SafetensorsFile::~SafetensorsFile() = default;
DPTK_INLINE SafetensorsFile::SafetensorsFile(SafetensorsFile&&) noexcept = default;
DPTK_INLINE SafetensorsFile& SafetensorsFile::operator=(SafetensorsFile&&) noexcept = default;

DPTK_INLINE const SafetensorsEntry* SafetensorsFile::find(std::string_view name) const noexcept {
    const auto found = by_name_.find(name);
    return found == by_name_.end() ? nullptr : &entries_[found->second];
}

DPTK_INLINE void SafetensorsFile::read(const SafetensorsEntry& entry, const Buffer& to) const {
    if (to.count != entry.count)
        throw ArgumentError(detail::text(path_.string(), ": tensor \"", entry.name, "\" has ", entry.count,
                                         " elements; expected memory for as many, found ", to.count));
    std::vector<std::byte> converted;
    void* memory = to.data;
    if (to.dtype != entry.dtype) {
        if (!is_floating(to.dtype) || !is_floating(entry.dtype))
            throw ArgumentError(detail::text(path_.string(), ": tensor \"", entry.name,
                                             "\": cannot convert elements from ", dtype_name(entry.dtype),
                                             " to ", dtype_name(to.dtype)));
        converted.resize(entry.bytes());
        memory = converted.data();
    }
    const std::size_t got = file_->read(memory, entry.bytes(), entry.offset, path_);
    if (got < entry.bytes())
        detail::throw_bad_safetensors(path_, entry.offset + got, "the file has become shorter");
    if (to.dtype != entry.dtype) detail::convert(to, {memory, entry.count, entry.dtype});
}

}  // namespace DPTK_NAMESPACE
