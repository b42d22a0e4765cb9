/// The file behind FileStore: its locks and its records.
///
/// The file is the magic and records, each with its length and checksum; the first record tells which run it
/// belongs to. Two locked bytes stand for two things: the data, locked for each access, and the life of the
/// creator, locked as long as it runs, so that the kernel tells the living from the dead.
///
/// The locks are open file description locks (fcntl, F_OFD_SETLK). As with all fcntl locks the NFS client
/// asks the server, so that they hold between hosts, and re-reads what others have written when it gets one.
/// Unlike POSIX locks they belong to the open file and not to the process: closing another descriptor of the
/// file does not drop them, and two stores in one process exclude each other. Unlike flock they cover single
/// bytes, so that one file does for both purposes.
#pragma once

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <ctime>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include "dptk/control/deadline.hpp"
#include "dptk/control/socket.hpp"
#include "dptk/control/store_protocol.hpp"
#include "dptk/core/error.hpp"
#include "dptk/core/fnv1a.hpp"
#include "dptk/core/text.hpp"

namespace dptk::detail {

inline constexpr std::string_view store_file_magic = "dptkfile";

/// To be raised whenever the records change.
inline constexpr std::uint32_t store_file_version = 1;

/// Which run a file belongs to.
struct StoreFileOrigin {
    std::string host;
    std::int64_t process = 0;
    /// Seconds since 1970.
    std::int64_t started = 0;
    std::string job;
    /// Makes each run's file different.
    std::uint64_t nonce = 0;
};

/// "2024-05-01 12:00:00 UTC".
[[nodiscard]] inline std::string time_text(std::int64_t seconds) {
    const auto time = static_cast<std::time_t>(seconds);
    std::tm parts{};
    char out[64];
    if (::gmtime_r(&time, &parts) == nullptr) return std::to_string(seconds);
    return {out, std::strftime(out, sizeof out, "%Y-%m-%d %H:%M:%S UTC", &parts)};
}

enum class FileRecordKind : std::uint8_t { origin = 1, set, erase, closed };

struct FileRecord {
    FileRecordKind kind = FileRecordKind::closed;
    std::string_view key = {};
    std::string_view value = {};
};

/// Size, checksum and body.
[[nodiscard]] inline std::string encode(const FileRecord& record) {
    std::string body;
    append_integer(body, static_cast<std::uint64_t>(record.kind), 1);
    append_bytes(body, record.key);
    append_bytes(body, record.value);
    std::string out;
    append_integer(out, body.size(), 4);
    append_integer(out, fnv1a(body), 8);
    return out + body;
}

/// The record at the beginning of the bytes, and its size. Nothing where it is torn.
[[nodiscard]] inline std::optional<std::pair<FileRecord, std::size_t>> parse_record(std::string_view bytes) {
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

/// The beginning of a run's file: magic and the record of its origin.
[[nodiscard]] inline std::string encode_head(const StoreFileOrigin& origin) {
    std::string value;
    append_integer(value, store_file_version, 4);
    append_bytes(value, origin.host);
    append_integer(value, static_cast<std::uint64_t>(origin.process), 8);
    append_integer(value, static_cast<std::uint64_t>(origin.started), 8);
    append_bytes(value, origin.job);
    append_integer(value, origin.nonce, 8);
    return std::string(store_file_magic) + encode(FileRecord{FileRecordKind::origin, {}, value});
}

/// Whether the bytes may be (the torn beginning of) a store's file, so that it may be replaced.
[[nodiscard]] inline bool may_be_store_file(std::string_view bytes) {
    const std::size_t common = std::min(bytes.size(), store_file_magic.size());
    return bytes.substr(0, common) == store_file_magic.substr(0, common);
}

struct StoreFileHead {
    StoreFileOrigin origin;
    /// All bytes of it, as they stand in the file.
    std::string bytes;
};

/// Nothing where the head is torn, or of another version.
[[nodiscard]] inline std::optional<StoreFileHead> parse_head(std::string_view bytes) {
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

/// "host node0, process 123, started 2024-05-01 12:00:00 UTC".
[[nodiscard]] inline std::string origin_text(const std::optional<StoreFileHead>& head,
                                             std::string_view began = "started") {
    if (!head) return "of unknown origin";
    const StoreFileOrigin& origin = head->origin;
    return text("host ", origin.host, ", process ", origin.process, ", ", began, ' ',
                time_text(origin.started));
}

/// The bytes of the file whose locks stand for something.
enum class FileLockPlace : off_t { life = 0, data = 1 };

enum class FileAccess : short { read = F_RDLCK, write = F_WRLCK };

class StoreFile {
  public:
    StoreFile() = default;
    StoreFile(std::string path, FileDescriptor descriptor)
        : path_(std::move(path)), descriptor_(std::move(descriptor)) {}

    [[nodiscard]] const std::string& path() const noexcept { return path_; }
    [[nodiscard]] bool is_open() const noexcept { return descriptor_.is_open(); }

    /// The lock of the data, as long as it lives.
    class DataLock {
      public:
        explicit DataLock(const StoreFile& file) : file_(file) {}
        DataLock(const DataLock&) = delete;
        DataLock& operator=(const DataLock&) = delete;
        ~DataLock() {
            struct flock lock = file_.lock_of(FileLockPlace::data, F_UNLCK);
            ::fcntl(file_.descriptor_.number(), F_OFD_SETLK, &lock);
        }

      private:
        const StoreFile& file_;
    };

    /// Does not wait for ever: who holds the lock may have been stopped.
    [[nodiscard]] DataLock lock(FileAccess access) const {
        constexpr std::chrono::milliseconds patience = std::chrono::seconds(10);
        const Deadline deadline(patience);
        std::chrono::microseconds pause(50);
        while (!try_lock(FileLockPlace::data, access)) {
            if (deadline.passed()) {
                throw PeerLostError(text("the store ", path_, " is gone: another process has locked it for ",
                                         duration_text(patience)));
            }
            std::this_thread::sleep_for(pause);
            pause = std::min(pause * 2, std::chrono::microseconds(10'000));
        }
        return DataLock(*this);
    }

    [[nodiscard]] bool try_to_live() const { return try_lock(FileLockPlace::life, FileAccess::write); }

    /// Whether the creator, elsewhere, holds its lock.
    [[nodiscard]] bool creator_lives() const {
        struct flock lock = lock_of(FileLockPlace::life, F_WRLCK);
        while (::fcntl(descriptor_.number(), F_OFD_GETLK, &lock) != 0) {
            if (errno != EINTR) throw_failed("looking at its lock");
        }
        return lock.l_type != F_UNLCK;
    }

    /// Whether the path still leads to this file.
    [[nodiscard]] bool is_current() const {
        struct stat here {};
        struct stat there {};
        if (::fstat(descriptor_.number(), &here) != 0) throw_failed("looking at it");
        if (::stat(path_.c_str(), &there) != 0) return false;
        return here.st_dev == there.st_dev && here.st_ino == there.st_ino;
    }

    /// All from the offset on, or `most` bytes of it.
    [[nodiscard]] std::string read(std::size_t offset, std::size_t most = SIZE_MAX) const {
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

    /// Writes at the offset, and ends the file there.
    void write(std::size_t offset, std::string_view bytes) const {
        const auto end = static_cast<off_t>(offset);
        if (::ftruncate(descriptor_.number(), end) != 0) throw_failed("writing");
        while (!bytes.empty()) {
            const ssize_t put =
                ::pwrite(descriptor_.number(), bytes.data(), bytes.size(), static_cast<off_t>(offset));
            if (put < 0 && errno == EINTR) continue;
            if (put < 0) {
                const int error = errno;
                // A torn record would be ignored, too: this only saves its room.
                [[maybe_unused]] const int ignored = ::ftruncate(descriptor_.number(), end);
                errno = error;
                throw_failed("writing");
            }
            bytes.remove_prefix(static_cast<std::size_t>(put));
            offset += static_cast<std::size_t>(put);
        }
    }

  private:
    [[nodiscard]] static struct flock lock_of(FileLockPlace place, short type) {
        struct flock lock {};
        lock.l_type = type;
        lock.l_whence = SEEK_SET;
        lock.l_start = static_cast<off_t>(place);
        lock.l_len = 1;
        return lock;
    }

    [[nodiscard]] bool try_lock(FileLockPlace place, FileAccess access) const {
        struct flock lock = lock_of(place, static_cast<short>(access));
        while (::fcntl(descriptor_.number(), F_OFD_SETLK, &lock) != 0) {
            if (errno == EAGAIN || errno == EACCES) return false;
            if (errno != EINTR) throw_failed("locking");
        }
        return true;
    }

    [[noreturn]] void throw_failed(std::string_view doing) const {
        const int error = errno;
        if (error == ESTALE) throw PeerLostError(text("the store ", path_, " is gone: it has been removed"));
        throw BackendError(text("the store ", path_, " failed when ", doing, ": ", errno_text(error)));
    }

    std::string path_;
    FileDescriptor descriptor_;
};

/// The part before the last slash; "." where there is none.
[[nodiscard]] inline std::string directory_of(const std::string& path) {
    const std::size_t slash = path.find_last_of('/');
    if (slash == std::string::npos) return ".";
    return slash == 0 ? "/" : path.substr(0, slash);
}

[[noreturn]] inline void throw_cannot_open(const std::string& path, int error) {
    const std::string directory = directory_of(path);
    if (error == EISDIR) {
        throw ArgumentError(text("the store ", path, " is a directory, where a file belongs"));
    }
    if (error == ENOENT && ::access(directory.c_str(), F_OK) != 0) {
        throw ArgumentError(
            text("the directory ", directory, ", in which the store ", path, " belongs, does not exist"));
    }
    if ((error == EACCES || error == EROFS) && ::access(path.c_str(), F_OK) != 0) {
        throw ArgumentError(text("the store ", path, " cannot be created: the directory ", directory,
                                 " cannot be written to (", errno_text(error), ")"));
    }
    throw ArgumentError(text("the store ", path, " cannot be opened: ", errno_text(error)));
}

/// `flags` may say O_CREAT; without it, the file is closed where there is none.
[[nodiscard]] inline StoreFile open_store_file(const std::string& path, int flags) {
    FileDescriptor descriptor(::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK | flags, 0600));
    const int error = errno;
    if (!descriptor.is_open()) {
        const bool may_come = error == ENOENT && ::access(directory_of(path).c_str(), F_OK) == 0;
        if (may_come && (flags & O_CREAT) == 0) return {};
        throw_cannot_open(path, error);
    }
    struct stat status {};
    if (::fstat(descriptor.number(), &status) == 0 && !S_ISREG(status.st_mode)) {
        throw ArgumentError(text("the store ", path, " is no regular file"));
    }
    return {path, std::move(descriptor)};
}

}  // namespace dptk::detail
