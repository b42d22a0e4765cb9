/// A store in one file on a file system that all ranks share, for jobs whose hosts cannot reach each other by
/// TCP before they have met. Rank 0 creates it, the others join.
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

/// The file grows with every write and shrinks never: it suits a rendezvous, and heartbeats every few
/// seconds. Values that are waited for are noticed within 50 ms. When the creator ends, or dies, the store is
/// gone for all. Lost clients are not noticed, so that last wills are not carried out.
///
/// A crash while a record is written leaves a torn one, which is ignored and overwritten. A child process
/// that was forked shares its parent's locks: the creator counts as alive as long as one such child is.
class FileStore final : public Store {
  public:
    /// Replaces the file of an earlier run: see replaced(). Throws ArgumentError where a living process holds
    /// the file, where it is no file of a store, or cannot be created. `job` names the job: only those who
    /// join with the same name (at most 256 bytes) are let in.
    [[nodiscard]] static std::shared_ptr<FileStore> create(const std::string& path,
                                                           std::string_view job = "");

    /// Blocks until the creator of this run is there. The file of an earlier run is not taken for it, since a
    /// living creator holds a lock, and takes it together with the lock of the data before it writes anew.
    /// Throws TimeoutError, and ArgumentError where there is no such directory, or the file is none of a
    /// store or cannot be opened.
    [[nodiscard]] static std::shared_ptr<FileStore> join(const std::string& path,
                                                         std::chrono::milliseconds timeout,
                                                         std::string_view job = "");

    /// The creator leaves a last word, and removes the file.
    DPTK_INLINE ~FileStore() override;

    /// Of the creator: which run's file it has replaced, as "host H, process P, started T"; empty where there
    /// was none.
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

    /// A member, also where this is the creator: it does not keep the store alive.
    [[nodiscard]] DPTK_INLINE std::shared_ptr<Store> clone() override;

  private:
    enum class Role { creator, member };
    enum class Found { nothing, stale, other_job, ours };

    struct Sighting {
        Found found = Found::nothing;
        std::optional<detail::StoreFileHead> head = {};
    };

    struct Beginning {
        detail::StoreFileHead head;
        std::string replaced;
    };

    /// Between two looks at the file: short at first, then longer.
    class Pause {
      public:
        void sleep(const detail::Deadline& deadline);

      private:
        std::chrono::milliseconds next_{1};
    };

    FileStore(detail::StoreFile file, Beginning beginning, Role role);

    static void check_names(const std::string& path, std::string_view job);

    [[nodiscard]] static detail::StoreFileOrigin this_run(std::string_view job);

    static void check_is_store(const detail::StoreFile& file, std::string_view bytes);

    /// Takes the file over. Nothing where it was removed meanwhile.
    [[nodiscard]] static std::optional<Beginning> begin(const detail::StoreFile& file, std::string_view job);

    [[nodiscard]] static Sighting look_at(const detail::StoreFile& file, std::string_view job);

    [[noreturn]] static void throw_nobody(const std::string& path, const Sighting& sighting,
                                          std::chrono::milliseconds timeout);

    [[nodiscard]] std::string where() const { return " in the store " + file_.path(); }

    [[noreturn]] void throw_gone(std::string_view reason) const;

    /// Takes in what others have written.
    void refresh();

    void refresh_locked();

    void read_records();

    void apply(const detail::FileRecord& record);

    /// Carries out the operation on the newest state, alone.
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
#include "dptk/core/error.hpp"
#endif
