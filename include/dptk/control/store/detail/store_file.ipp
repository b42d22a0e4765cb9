#pragma once

#include "dptk/control/store/detail/store_file.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <ctime>

#include "dptk/control/process/deadline.hpp"
#include "dptk/control/store/detail/store_protocol.hpp"
#include "dptk/core/detail/errno_text.hpp"
#include "dptk/core/detail/fnv1a.hpp"
#include "dptk/core/detail/text.hpp"
#include "dptk/core/error.hpp"

namespace DPTK_NAMESPACE::detail {

inline constexpr std::string_view store_file_magic = "dptkfile";

/// Must be increased whenever the format of the records changes.
inline constexpr std::uint32_t store_file_version = 1;

/// Formats a time: "2024-05-01 12:00:00 UTC".
[[nodiscard]] DPTK_INLINE std::string time_text(std::int64_t seconds) {
    const auto time = static_cast<std::time_t>(seconds);
    std::tm parts{};
    char out[64];
    if (::gmtime_r(&time, &parts) == nullptr) return std::to_string(seconds);
    return {out, std::strftime(out, sizeof out, "%Y-%m-%d %H:%M:%S UTC", &parts)};
}

DPTK_INLINE std::string encode(const FileRecord& record) {
    std::string body;
    append_integer(body, static_cast<std::uint64_t>(record.kind), 1);
    append_bytes(body, record.key);
    append_bytes(body, record.value);
    std::string out;
    append_integer(out, body.size(), 4);
    append_integer(out, fnv1a(body), 8);
    return out + body;
}

DPTK_INLINE std::optional<std::pair<FileRecord, std::size_t>> parse_record(std::string_view bytes) {
    constexpr std::size_t head = 12;
    ByteReader reader(bytes);
    const std::size_t size = reader.u32();
    const auto checksum = static_cast<std::uint64_t>(reader.i64());
    if (!reader.ok() || bytes.size() - head < size) return std::nullopt;
    const std::string_view body = bytes.substr(head, size);
    if (fnv1a(body) != checksum) return std::nullopt;
    ByteReader fields(body);
    FileRecord record;
    record.kind = static_cast<FileRecordKind>(fields.u8());
    record.key = fields.bytes();
    record.value = fields.bytes();
    if (!fields.ok() || !fields.at_end()) return std::nullopt;
    return std::pair(record, head + size);
}

DPTK_INLINE std::string encode_head(const StoreFileOrigin& origin) {
    std::string value;
    append_integer(value, store_file_version, 4);
    append_bytes(value, origin.host);
    append_integer(value, static_cast<std::uint64_t>(origin.process), 8);
    append_integer(value, static_cast<std::uint64_t>(origin.started), 8);
    append_bytes(value, origin.job);
    append_integer(value, origin.nonce, 8);
    return std::string(store_file_magic) + encode(FileRecord{FileRecordKind::origin, {}, value});
}

DPTK_INLINE bool may_be_store_file(std::string_view bytes) {
    const std::size_t common = std::min(bytes.size(), store_file_magic.size());
    return bytes.substr(0, common) == store_file_magic.substr(0, common);
}

DPTK_INLINE std::optional<StoreFileHead> parse_head(std::string_view bytes) {
    if (!bytes.starts_with(store_file_magic)) return std::nullopt;
    const auto record = parse_record(bytes.substr(store_file_magic.size()));
    if (!record || record->first.kind != FileRecordKind::origin) return std::nullopt;
    ByteReader reader(record->first.value);
    StoreFileHead head;
    if (reader.u32() != store_file_version) return std::nullopt;
    head.origin.host = reader.bytes();
    head.origin.process = reader.i64();
    head.origin.started = reader.i64();
    head.origin.job = reader.bytes();
    head.origin.nonce = reader.integer(8);
    if (!reader.ok()) return std::nullopt;
    head.bytes = bytes.substr(0, store_file_magic.size() + record->second);
    return head;
}

DPTK_INLINE std::string origin_text(const std::optional<StoreFileHead>& head, std::string_view began) {
    if (!head) return "of unknown origin";
    const StoreFileOrigin& origin = head->origin;
    return text("host ", origin.host, ", process ", origin.process, ", ", began, ' ',
                time_text(origin.started));
}

DPTK_INLINE StoreFile::StoreFile(std::string path, FileDescriptor descriptor)
    : path_(std::move(path)), descriptor_(std::move(descriptor)) {}

DPTK_INLINE StoreFile::DataLock::~DataLock() {
    struct flock lock = file_.lock_of(FileLockPlace::data, F_UNLCK);
    ::fcntl(file_.descriptor_.number(), F_OFD_SETLK, &lock);
}

DPTK_INLINE StoreFile::DataLock StoreFile::lock(FileAccess access) const {
    constexpr std::chrono::milliseconds timeout = std::chrono::seconds(10);
    const Deadline deadline(timeout);
    std::chrono::microseconds pause(50);
    while (!try_lock(FileLockPlace::data, access)) {
        if (deadline.passed()) {
            throw PeerLostError(text("lost the store ", path_, ": another process has held its lock for ",
                                     duration_text(timeout)));
        }
        AwakeClock::sleep_for(pause);
        pause = std::min(pause * 2, std::chrono::microseconds(10'000));
    }
    return DataLock(*this);
}

DPTK_INLINE bool StoreFile::try_lock_creator() const {
    return try_lock(FileLockPlace::creator, FileAccess::write);
}

DPTK_INLINE bool StoreFile::is_creator_alive() const {
    struct flock lock = lock_of(FileLockPlace::creator, F_WRLCK);
    while (::fcntl(descriptor_.number(), F_OFD_GETLK, &lock) != 0) {
        if (errno != EINTR) throw_failed("querying its lock");
    }
    return lock.l_type != F_UNLCK;
}

DPTK_INLINE bool StoreFile::is_current() const {
    struct stat here {};
    struct stat there {};
    if (::fstat(descriptor_.number(), &here) != 0) throw_failed("querying its status");
    if (::stat(path_.c_str(), &there) != 0) return false;
    return here.st_dev == there.st_dev && here.st_ino == there.st_ino;
}

DPTK_INLINE std::string StoreFile::read(std::size_t offset, std::size_t most) const {
    constexpr std::size_t piece = 65'536;
    std::string bytes;
    while (bytes.size() < most) {
        const std::size_t before = bytes.size();
        bytes.resize(before + std::min(piece, most - before));
        const ssize_t got = ::pread(descriptor_.number(), bytes.data() + before, bytes.size() - before,
                                    static_cast<off_t>(offset + before));
        bytes.resize(before + static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
        if (got == 0) break;
        if (got < 0 && errno != EINTR) throw_failed("reading");
    }
    return bytes;
}

DPTK_INLINE void StoreFile::write(std::size_t offset, std::string_view bytes) const {
    const auto end = static_cast<off_t>(offset);
    if (::ftruncate(descriptor_.number(), end) != 0) throw_failed("writing");
    while (!bytes.empty()) {
        const ssize_t put =
            ::pwrite(descriptor_.number(), bytes.data(), bytes.size(), static_cast<off_t>(offset));
        if (put < 0 && errno == EINTR) continue;
        if (put < 0) {
            const int error = errno;
            // Readers would ignore the incomplete record; truncating only frees its space.
            [[maybe_unused]] const int ignored = ::ftruncate(descriptor_.number(), end);
            errno = error;
            throw_failed("writing");
        }
        bytes.remove_prefix(static_cast<std::size_t>(put));
        offset += static_cast<std::size_t>(put);
    }
}

DPTK_INLINE struct flock StoreFile::lock_of(FileLockPlace place, short type) {
    struct flock lock {};
    lock.l_type = type;
    lock.l_whence = SEEK_SET;
    lock.l_start = static_cast<off_t>(place);
    lock.l_len = 1;
    return lock;
}

DPTK_INLINE bool StoreFile::try_lock(FileLockPlace place, FileAccess access) const {
    struct flock lock = lock_of(place, static_cast<short>(access));
    while (::fcntl(descriptor_.number(), F_OFD_SETLK, &lock) != 0) {
        if (errno == EAGAIN || errno == EACCES) return false;
        if (errno != EINTR) throw_failed("locking");
    }
    return true;
}

DPTK_INLINE void StoreFile::throw_failed(std::string_view doing) const {
    const int error = errno;
    if (error == ESTALE) throw PeerLostError(text("the store's file ", path_, " has been removed"));
    throw BackendError(text("the store ", path_, " failed when ", doing, ": ", errno_text(error)));
}

/// Returns the part of the path before the last slash, or "." if there is no slash.
[[nodiscard]] DPTK_INLINE std::string directory_of(const std::string& path) {
    const std::size_t slash = path.find_last_of('/');
    if (slash == std::string::npos) return ".";
    return slash == 0 ? "/" : path.substr(0, slash);
}

[[noreturn]] DPTK_INLINE void throw_cannot_open(const std::string& path, int error) {
    const std::string directory = directory_of(path);
    if (error == EISDIR) {
        throw ArgumentError(text("the store ", path, " is a directory: expected a file"));
    }
    if (error == ELOOP) {
        throw ArgumentError(text("the store ", path, " is a symbolic link: expected a file"));
    }
    if (error == ENOENT && ::access(directory.c_str(), F_OK) != 0) {
        throw ArgumentError(text("the directory ", directory, " of the store ", path, " does not exist"));
    }
    if ((error == EACCES || error == EROFS) && ::access(path.c_str(), F_OK) != 0) {
        throw ArgumentError(text("the store ", path, " cannot be created: the directory ", directory,
                                 " is not writable (", errno_text(error), ")"));
    }
    throw ArgumentError(text("the store ", path, " cannot be opened: ", errno_text(error)));
}

DPTK_INLINE void check_private_file(const std::string& what, int descriptor) {
    struct stat status {};
    if (::fstat(descriptor, &status) != 0)
        throw BackendError(text(what, ": cannot query its status: ", errno_text(errno)));
    if (!S_ISREG(status.st_mode)) throw ArgumentError(what + " is not a regular file");
    if (status.st_uid != ::geteuid()) {
        throw ArgumentError(
            text(what, " belongs to another user (user id ", status.st_uid, ", expected ", ::geteuid(), ")"));
    }
    if ((status.st_mode & 077) != 0) {
        const unsigned mode = status.st_mode & 0777;
        throw ArgumentError(text(what, " can be accessed by other users (mode 0", mode / 64, mode / 8 % 8,
                                 mode % 8, "): expected mode 0600"));
    }
}

DPTK_INLINE StoreFile open_store_file(const std::string& path, int flags) {
    FileDescriptor descriptor(
        ::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW | flags, 0600));
    const int error = errno;
    if (!descriptor.is_open()) {
        const bool may_be_created = error == ENOENT && ::access(directory_of(path).c_str(), F_OK) == 0;
        if (may_be_created && (flags & O_CREAT) == 0) return {};
        throw_cannot_open(path, error);
    }
    struct stat status {};
    const bool is_regular = ::fstat(descriptor.number(), &status) == 0 && S_ISREG(status.st_mode);
    char bytes[store_file_magic.size()];
    const ssize_t count = is_regular ? ::pread(descriptor.number(), bytes, sizeof bytes, 0) : 0;
    // A link to another file of this user, which another user may make in a shared directory.
    if (is_regular && status.st_nlink > 1)
        throw ArgumentError(
            text("the store ", path, " has ", status.st_nlink, " hard links: expected a file with one name"));
    // If the file is not a store, the caller reports that when it reads the file.
    if (may_be_store_file({bytes, static_cast<std::size_t>(std::max<ssize_t>(count, 0))}))
        check_private_file("the store " + path, descriptor.number());
    return {path, std::move(descriptor)};
}

}  // namespace DPTK_NAMESPACE::detail
