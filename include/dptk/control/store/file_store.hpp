/// File store: a store in one file on a shared file system, for jobs whose hosts do not know each other's
/// addresses before the rendezvous. Rank 0 creates the store, and the other ranks join it.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "dptk/control/process/deadline.hpp"
#include "dptk/control/store/detail/store_file.hpp"
#include "dptk/control/store/detail/store_map.hpp"
#include "dptk/control/store/store.hpp"
#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE {

/// A store in a file. The file grows with each write and never shrinks, so it is suited for a rendezvous,
/// and for heartbeats every few seconds. Clients poll the file: a call that waits sees a new value within
/// 50 ms. When the creator ends or is killed, all calls throw PeerLostError. The store does not detect lost
/// clients, so it does not carry out last wills.
///
/// A process that is killed while it writes may leave an incomplete record, which the others ignore and
/// overwrite. A forked child shares its parent's locks: the creator counts as alive while one of its
/// children is alive.
class FileStore final : public Store {
  public:
    /// Creates the store, and replaces the file of an earlier run: see replaced(). `job` is the name of the
    /// job, at most 256 bytes; only processes that pass the same name to join() can join. Throws
    /// ArgumentError if a running process uses the file, or if the file is not a store file, cannot be
    /// created, or can be accessed by other users.
    [[nodiscard]] static std::shared_ptr<FileStore> create(const std::string& path,
                                                           std::string_view job = "");

    /// Joins the store that rank 0 creates. Blocks until the store exists, for at most `timeout`. Ignores
    /// the file of an earlier run, because only a running creator holds the creator lock. Throws
    /// TimeoutError at the timeout, and ArgumentError if the directory does not exist, or if the file is
    /// not a store file, cannot be opened, or can be accessed by other users.
    [[nodiscard]] static std::shared_ptr<FileStore> join(const std::string& path,
                                                         std::chrono::milliseconds timeout,
                                                         std::string_view job = "");

    /// On the creator, marks the store as closed, and removes the file.
    DPTK_INLINE ~FileStore() override;

    /// On the creator, returns a description of the run whose file was replaced: "host H, process P, started
    /// T". Empty if no file was replaced.
    [[nodiscard]] const std::string& replaced() const noexcept { return replaced_; }

    DPTK_INLINE void set(std::string_view key, std::string_view value) override;

    [[nodiscard]] DPTK_INLINE std::string get(std::string_view key,
                                              std::chrono::milliseconds timeout) override;

    [[nodiscard]] DPTK_INLINE std::optional<std::string> find(std::string_view key) override;

    DPTK_INLINE std::int64_t add(std::string_view key, std::int64_t amount) override;

    DPTK_INLINE std::string compare_and_set(std::string_view key, std::string_view expected,
                                            std::string_view desired) override;

    DPTK_INLINE void wait(std::span<const std::string> keys, std::chrono::milliseconds timeout) override;

    DPTK_INLINE bool erase(std::string_view key) override;

    DPTK_INLINE void set_last_will(std::string_view key, std::string_view value) override;

    /// Opens the file for another client. The clone of a creator is not a creator, and does not keep the
    /// store alive.
    [[nodiscard]] DPTK_INLINE std::shared_ptr<Store> clone() override;

  private:
    enum class Role { creator, member };
    enum class Found { nothing, stale, other_job, ours };

    struct Inspection {
        Found found = Found::nothing;
        std::optional<detail::StoreFileHead> head = {};
    };

    struct Beginning {
        detail::StoreFileHead head;
        std::string replaced;
    };

    /// The interval at which the file is polled; increases from 1 ms to 50 ms.
    class Backoff {
      public:
        void sleep(const detail::Deadline& deadline);

      private:
        std::chrono::milliseconds next_{1};
    };

    FileStore(detail::StoreFile file, Beginning beginning, Role role);

    static void check_names(const std::string& path, std::string_view job);

    [[nodiscard]] static detail::StoreFileOrigin this_run(std::string_view job);

    static void check_is_store(const detail::StoreFile& file, std::string_view bytes);

    /// Acquires the creator lock and writes the head. Returns nullopt if the file was removed in the
    /// meantime.
    [[nodiscard]] static std::optional<Beginning> begin(const detail::StoreFile& file, std::string_view job);

    [[nodiscard]] static Inspection inspect(const detail::StoreFile& file, std::string_view job);

    [[noreturn]] static void throw_join_timeout(const std::string& path, const Inspection& inspection,
                                                std::chrono::milliseconds timeout);

    [[nodiscard]] std::string where() const { return " in the store " + file_.path(); }

    [[noreturn]] void throw_lost(std::string_view reason) const;

    /// Reads the records that other processes have written.
    void refresh();

    void refresh_locked();

    void read_records();

    void apply(const detail::FileRecord& record);

    /// Performs the operation on the current state, while holding the data lock exclusively.
    template <class Operation>
    void write(Operation operation) {
        const std::lock_guard lock(mutex_);
        const auto file_lock = file_.lock(detail::FileAccess::write);
        refresh_locked();
        operation();
    }

    void append(const detail::FileRecord& record);

    [[nodiscard]] std::vector<std::string> missing_of(std::span<const std::string> keys);

    static constexpr std::size_t most_head_bytes = 4096;

    std::mutex mutex_;
    detail::StoreFile file_;
    Role role_;
    detail::StoreFileHead head_;
    std::string replaced_;
    detail::StoreMap map_;
    std::size_t offset_;
    bool closed_ = false;
};

}  // namespace DPTK_NAMESPACE

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/control/store/file_store.ipp"
#endif
