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

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "dptk/control/net/socket.hpp"
#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE::detail {

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

enum class FileRecordKind : std::uint8_t { origin = 1, set, erase, closed };

struct FileRecord {
    FileRecordKind kind = FileRecordKind::closed;
    std::string_view key = {};
    std::string_view value = {};
};

/// Size, checksum and body.
[[nodiscard]] std::string encode(const FileRecord& record);

/// The record at the beginning of the bytes, and its size. Nothing where it is torn.
[[nodiscard]] std::optional<std::pair<FileRecord, std::size_t>> parse_record(std::string_view bytes);

/// The beginning of a run's file: magic and the record of its origin.
[[nodiscard]] std::string encode_head(const StoreFileOrigin& origin);

/// Whether the bytes may be (the torn beginning of) a store's file, so that it may be replaced.
[[nodiscard]] bool may_be_store_file(std::string_view bytes);

struct StoreFileHead {
    StoreFileOrigin origin;
    /// All bytes of it, as they stand in the file.
    std::string bytes;
};

/// Nothing where the head is torn, or of another version.
[[nodiscard]] std::optional<StoreFileHead> parse_head(std::string_view bytes);

/// "host node0, process 123, started 2024-05-01 12:00:00 UTC".
[[nodiscard]] std::string origin_text(const std::optional<StoreFileHead>& head,
                                      std::string_view began = "started");

/// The bytes of the file whose locks stand for something.
enum class FileLockPlace : off_t { life = 0, data = 1 };

enum class FileAccess : short { read = F_RDLCK, write = F_WRLCK };

class StoreFile {
  public:
    StoreFile() = default;
    StoreFile(std::string path, FileDescriptor descriptor);

    [[nodiscard]] const std::string& path() const noexcept { return path_; }
    [[nodiscard]] bool is_open() const noexcept { return descriptor_.is_open(); }

    /// The lock of the data, as long as it lives.
    class DataLock {
      public:
        explicit DataLock(const StoreFile& file) : file_(file) {}
        DataLock(const DataLock&) = delete;
        DataLock& operator=(const DataLock&) = delete;
        ~DataLock();

      private:
        const StoreFile& file_;
    };

    /// Does not wait for ever: who holds the lock may have been stopped.
    [[nodiscard]] DataLock lock(FileAccess access) const;

    [[nodiscard]] bool try_to_live() const;

    /// Whether the creator, elsewhere, holds its lock.
    [[nodiscard]] bool creator_lives() const;

    /// Whether the path still leads to this file.
    [[nodiscard]] bool is_current() const;

    /// All from the offset on, or `most` bytes of it.
    [[nodiscard]] std::string read(std::size_t offset, std::size_t most = SIZE_MAX) const;

    /// Writes at the offset, and ends the file there.
    void write(std::size_t offset, std::string_view bytes) const;

  private:
    [[nodiscard]] static struct flock lock_of(FileLockPlace place, short type);

    [[nodiscard]] bool try_lock(FileLockPlace place, FileAccess access) const;

    [[noreturn]] void throw_failed(std::string_view doing) const;

    std::string path_;
    FileDescriptor descriptor_;
};

/// `flags` may say O_CREAT; without it, the file is closed where there is none.
[[nodiscard]] StoreFile open_store_file(const std::string& path, int flags);

}  // namespace DPTK_NAMESPACE::detail

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/control/store/detail/store_file.ipp"
#endif
