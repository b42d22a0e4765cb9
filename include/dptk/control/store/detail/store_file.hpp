/// Store file: the format and the locks of the file that a FileStore uses.
///
/// The file contains a magic word and records, each with its length and checksum. The first record identifies
/// the run. Two bytes of the file are used as locks. The data lock is held during each access. The creator
/// lock is held while the creator runs; the kernel releases it when the creator ends, so that the other
/// processes detect that.
///
/// The locks are open file description locks (fcntl, F_OFD_SETLK). As with all fcntl locks, an NFS client
/// acquires them from the server, so that they exclude processes on other hosts. When the client has acquired
/// a lock, it re-reads data that other hosts have written. Unlike POSIX locks, these locks belong to the open
/// file and not to the process: closing another descriptor of the file does not release them, and two stores
/// in one process exclude each other. Unlike flock locks, they cover single bytes, so that one file holds
/// both locks.
#pragma once

#include <fcntl.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "dptk/control/net/socket.hpp"
#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE::detail {

/// Identifies the run that a file belongs to.
struct StoreFileOrigin {
    std::string host;
    std::int64_t process = 0;
    /// When the creator started, in seconds since 1970.
    std::int64_t started = 0;
    std::string job;
    /// A random number that makes the head of each run's file unique.
    std::uint64_t nonce = 0;
};

enum class FileRecordKind : std::uint8_t { origin = 1, set, erase, closed };

struct FileRecord {
    FileRecordKind kind = FileRecordKind::closed;
    std::string_view key = {};
    std::string_view value = {};
};

/// Serializes a record: size, checksum and body.
[[nodiscard]] std::string encode(const FileRecord& record);

/// Parses the record at the beginning of `bytes`. Returns the record and its size, or nullopt if the record
/// is incomplete or damaged.
[[nodiscard]] std::optional<std::pair<FileRecord, std::size_t>> parse_record(std::string_view bytes);

/// Serializes the head of a file: the magic word and the origin record.
[[nodiscard]] std::string encode_head(const StoreFileOrigin& origin);

/// Returns whether `bytes` may be the beginning of a store file, possibly an incomplete one. Only such a file
/// may be replaced.
[[nodiscard]] bool may_be_store_file(std::string_view bytes);

struct StoreFileHead {
    StoreFileOrigin origin;
    /// The serialized head.
    std::string bytes;
};

/// Parses the head of a file. Returns nullopt if it is incomplete, damaged, or of another version.
[[nodiscard]] std::optional<StoreFileHead> parse_head(std::string_view bytes);

/// Returns a description such as "host node0, process 123, started 2024-05-01 12:00:00 UTC". `began` is the
/// word before the time.
[[nodiscard]] std::string origin_text(const std::optional<StoreFileHead>& head,
                                      std::string_view began = "started");

/// The offsets of the bytes that are used as locks.
enum class FileLockPlace : off_t { creator = 0, data = 1 };

enum class FileAccess : short { read = F_RDLCK, write = F_WRLCK };

class StoreFile {
  public:
    StoreFile() = default;
    StoreFile(std::string path, FileDescriptor descriptor);

    [[nodiscard]] const std::string& path() const noexcept { return path_; }
    [[nodiscard]] bool is_open() const noexcept { return descriptor_.is_open(); }

    /// Holds the data lock; releases it on destruction.
    class DataLock {
      public:
        explicit DataLock(const StoreFile& file) : file_(file) {}
        DataLock(const DataLock&) = delete;
        DataLock& operator=(const DataLock&) = delete;
        ~DataLock();

      private:
        const StoreFile& file_;
    };

    /// Acquires the data lock. Blocks for at most 10 s, since the process that holds the lock may have been
    /// stopped; then throws PeerLostError.
    [[nodiscard]] DataLock lock(FileAccess access) const;

    /// Tries to acquire the creator lock, which this object then holds until it closes the file.
    [[nodiscard]] bool try_lock_creator() const;

    /// Returns whether the creator still runs, that is, whether the creator lock is held through another file
    /// descriptor than this object's.
    [[nodiscard]] bool is_creator_alive() const;

    /// Returns whether the path still refers to this file.
    [[nodiscard]] bool is_current() const;

    /// Reads from the offset to the end of the file, but at most `most` bytes.
    [[nodiscard]] std::string read(std::size_t offset, std::size_t most = SIZE_MAX) const;

    /// Truncates the file at the offset, and appends the bytes.
    void write(std::size_t offset, std::string_view bytes) const;

  private:
    [[nodiscard]] static struct flock lock_of(FileLockPlace place, short type);

    [[nodiscard]] bool try_lock(FileLockPlace place, FileAccess access) const;

    [[noreturn]] void throw_failed(std::string_view doing) const;

    std::string path_;
    FileDescriptor descriptor_;
};

/// Throws ArgumentError unless the file is a regular one that belongs to this user, and that other users can
/// neither read nor write: it holds the token of the job. `what` names the file in the error.
void check_private_file(const std::string& what, int descriptor);

/// Opens a store file. `flags` may be O_CREAT; without O_CREAT, is_open() of the result is false if the file
/// does not exist. Throws ArgumentError if the file cannot be opened, if other users can access it, or if it
/// is a link to another file.
[[nodiscard]] StoreFile open_store_file(const std::string& path, int flags);

}  // namespace DPTK_NAMESPACE::detail

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/control/store/detail/store_file.ipp"
#endif
