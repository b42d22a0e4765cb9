/// A store in one file on a file system that all ranks share, for jobs whose hosts cannot reach each other by
/// TCP before they have met. Rank 0 creates it, the others join.
#pragma once

#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <ctime>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "dptk/control/deadline.hpp"
#include "dptk/control/store.hpp"
#include "dptk/control/store_file.hpp"
#include "dptk/control/store_map.hpp"
#include "dptk/core/error.hpp"
#include "dptk/core/text.hpp"

namespace dptk {

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
                                                           std::string_view job = "") {
        check_names(path, job);
        while (true) {
            detail::StoreFile file = detail::open_store_file(path, O_CREAT);
            std::optional<Beginning> beginning = begin(file, job);
            if (!beginning) continue;
            return std::shared_ptr<FileStore>(
                new FileStore(std::move(file), std::move(*beginning), Role::creator));
        }
    }

    /// Blocks until the creator of this run is there. The file of an earlier run is not taken for it, since a
    /// living creator holds a lock, and takes it together with the lock of the data before it writes anew.
    /// Throws TimeoutError, and ArgumentError where there is no such directory, or the file is none of a
    /// store or cannot be opened.
    [[nodiscard]] static std::shared_ptr<FileStore> join(const std::string& path,
                                                         std::chrono::milliseconds timeout,
                                                         std::string_view job = "") {
        check_names(path, job);
        const detail::Deadline deadline(timeout);
        Pause pause;
        while (true) {
            detail::StoreFile file = detail::open_store_file(path, 0);
            Sighting sighting = file.is_open() ? look_at(file, job) : Sighting{};
            if (sighting.found == Found::ours) {
                return std::shared_ptr<FileStore>(
                    new FileStore(std::move(file), {std::move(*sighting.head), {}}, Role::member));
            }
            if (deadline.passed()) throw_nobody(path, sighting, timeout);
            pause.sleep(deadline);
        }
    }

    /// The creator leaves a last word, and removes the file.
    ~FileStore() override {
        if (role_ != Role::creator) return;
        try {
            const auto lock = file_.lock(detail::FileAccess::write);
            read_records();
            if (closed_ || file_.read(0, head_.bytes.size()) != head_.bytes) return;
            if (file_.is_current()) ::unlink(file_.path().c_str());
            file_.write(offset_, encode(detail::FileRecord{}));
        } catch (const Error&) {
            // The next run will find a stale file, and replace it.
        }
    }

    /// Of the creator: which run's file it has replaced, as "host H, process P, started T"; empty where there
    /// was none.
    [[nodiscard]] const std::string& replaced() const noexcept { return replaced_; }

    void set(std::string_view key, std::string_view value) override {
        write([&] {
            map_.set(key, value);
            append({detail::FileRecordKind::set, key, value});
        });
    }

    [[nodiscard]] std::string get(std::string_view key, std::chrono::milliseconds timeout) override {
        const detail::Deadline deadline(timeout);
        Pause pause;
        while (true) {
            const bool last = deadline.passed();
            if (std::optional<std::string> value = find(key)) return std::move(*value);
            const std::string missing(key);
            if (last) detail::throw_missing_keys({&missing, 1}, timeout, where());
            pause.sleep(deadline);
        }
    }

    [[nodiscard]] std::optional<std::string> find(std::string_view key) override {
        detail::check_store_key(key);
        const std::lock_guard lock(mutex_);
        refresh();
        const std::string* value = map_.find(key);
        return value == nullptr ? std::nullopt : std::optional(*value);
    }

    std::int64_t add(std::string_view key, std::int64_t amount) override {
        std::int64_t sum = 0;
        write([&] {
            sum = map_.add(key, amount);
            append({detail::FileRecordKind::set, key, std::to_string(sum)});
        });
        return sum;
    }

    std::string compare_and_set(std::string_view key, std::string_view expected,
                                std::string_view desired) override {
        detail::check_store_key(key);
        std::string value;
        write([&] {
            value = map_.compare_and_set(key, expected, desired);
            if (value == desired) append({detail::FileRecordKind::set, key, desired});
        });
        return value;
    }

    void wait(std::span<const std::string> keys, std::chrono::milliseconds timeout) override {
        for (const std::string& key : keys) detail::check_store_key(key);
        const detail::Deadline deadline(timeout);
        Pause pause;
        while (true) {
            const bool last = deadline.passed();
            const std::vector<std::string> missing = missing_of(keys);
            if (missing.empty()) return;
            if (last) detail::throw_missing_keys(missing, timeout, where());
            pause.sleep(deadline);
        }
    }

    bool erase(std::string_view key) override {
        bool erased = false;
        write([&] {
            erased = map_.erase(key);
            if (erased) append({detail::FileRecordKind::erase, key, {}});
        });
        return erased;
    }

    void set_last_will(std::string_view key, std::string_view value) override {
        if (!key.empty()) detail::check_store_key(key);
        detail::check_store_value(key, value);
    }

    /// A member, also where this is the creator: it does not keep the store alive.
    [[nodiscard]] std::shared_ptr<Store> clone() override {
        detail::StoreFile file = detail::open_store_file(file_.path(), 0);
        if (!file.is_open()) throw_gone("it has been removed");
        std::shared_ptr<FileStore> copy(new FileStore(std::move(file), {head_, {}}, Role::member));
        const std::lock_guard lock(copy->mutex_);
        copy->refresh();
        return copy;
    }

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
        void sleep(const detail::Deadline& deadline) {
            std::this_thread::sleep_for(std::min(next_, deadline.left()));
            next_ = std::min(next_ * 2, std::chrono::milliseconds(50));
        }

      private:
        std::chrono::milliseconds next_{1};
    };

    FileStore(detail::StoreFile file, Beginning beginning, Role role)
        : file_(std::move(file)),
          role_(role),
          head_(std::move(beginning.head)),
          replaced_(std::move(beginning.replaced)),
          offset_(head_.bytes.size()) {}

    static void check_names(const std::string& path, std::string_view job) {
        if (path.empty()) throw ArgumentError("the path of a file store is empty");
        if (job.size() > 256) throw ArgumentError("the job's name of a file store has more than 256 bytes");
    }

    [[nodiscard]] static detail::StoreFileOrigin this_run(std::string_view job) {
        detail::StoreFileOrigin origin;
        char host[256] = "";
        ::gethostname(host, sizeof host - 1);
        origin.host = host;
        origin.process = ::getpid();
        origin.started = static_cast<std::int64_t>(std::time(nullptr));
        origin.job = job;
        [[maybe_unused]] const ssize_t got = ::getrandom(&origin.nonce, sizeof origin.nonce, 0);
        return origin;
    }

    static void check_is_store(const detail::StoreFile& file, std::string_view bytes) {
        if (detail::may_be_store_file(bytes)) return;
        throw ArgumentError(detail::text("the file ", file.path(),
                                         " is there already, and is none of a dptk store; it is left alone"));
    }

    /// Takes the file over. Nothing where it was removed meanwhile.
    [[nodiscard]] static std::optional<Beginning> begin(const detail::StoreFile& file, std::string_view job) {
        const auto lock = file.lock(detail::FileAccess::write);
        if (!file.is_current()) return std::nullopt;
        const std::string bytes = file.read(0, most_head_bytes);
        check_is_store(file, bytes);
        const std::optional<detail::StoreFileHead> old = detail::parse_head(bytes);
        if (!file.try_to_live()) {
            throw ArgumentError(detail::text("the store ", file.path(), " is in use by a running job (",
                                             detail::origin_text(old, "since"), ")"));
        }
        Beginning beginning;
        if (!bytes.empty()) beginning.replaced = detail::origin_text(old);
        beginning.head.origin = this_run(job);
        beginning.head.bytes = detail::encode_head(beginning.head.origin);
        file.write(0, beginning.head.bytes);
        return beginning;
    }

    [[nodiscard]] static Sighting look_at(const detail::StoreFile& file, std::string_view job) {
        const auto lock = file.lock(detail::FileAccess::read);
        if (!file.is_current()) return {};
        const std::string bytes = file.read(0, most_head_bytes);
        if (bytes.empty()) return {};
        check_is_store(file, bytes);
        Sighting sighting{Found::stale, detail::parse_head(bytes)};
        if (!file.creator_lives() || !sighting.head) return sighting;
        sighting.found = sighting.head->origin.job == job ? Found::ours : Found::other_job;
        return sighting;
    }

    [[noreturn]] static void throw_nobody(const std::string& path, const Sighting& sighting,
                                          std::chrono::milliseconds timeout) {
        const std::string within = " within " + detail::duration_text(timeout);
        const std::string origin = detail::origin_text(sighting.head);
        if (sighting.found == Found::stale) {
            throw TimeoutError(detail::text("the store ", path, " holds only the state of an earlier run (",
                                            origin, "); rank 0 of this job has not come", within));
        }
        if (sighting.found == Found::other_job) {
            throw TimeoutError(detail::text("the store ", path, " is in use by another job (", origin,
                                            "); rank 0 of this job has not come", within));
        }
        throw TimeoutError(detail::text("the store ", path, " has not been created by rank 0", within));
    }

    [[nodiscard]] std::string where() const { return " in the store " + file_.path(); }

    [[noreturn]] void throw_gone(std::string_view reason) const {
        throw PeerLostError(detail::text("the store ", file_.path(), " is gone: ", reason));
    }

    /// Takes in what others have written.
    void refresh() {
        const auto lock = file_.lock(detail::FileAccess::read);
        refresh_locked();
    }

    void refresh_locked() {
        if (file_.read(0, head_.bytes.size()) != head_.bytes) throw_gone("another run has replaced it");
        read_records();
        if (closed_) throw_gone("rank 0 has closed it");
        if (role_ == Role::creator || file_.creator_lives()) return;
        throw_gone(detail::text("its creator has ended (", detail::origin_text(head_), ")"));
    }

    void read_records() {
        const std::string bytes = file_.read(offset_);
        std::string_view left = bytes;
        while (const auto record = detail::parse_record(left)) {
            apply(record->first);
            left.remove_prefix(record->second);
            offset_ += record->second;
        }
    }

    void apply(const detail::FileRecord& record) {
        if (record.kind == detail::FileRecordKind::set) map_.set(record.key, record.value);
        if (record.kind == detail::FileRecordKind::erase) map_.erase(record.key);
        if (record.kind == detail::FileRecordKind::closed) closed_ = true;
    }

    /// Carries out the operation on the newest state, alone.
    template <class Operation>
    void write(Operation operation) {
        const std::lock_guard lock(mutex_);
        const auto file_lock = file_.lock(detail::FileAccess::write);
        refresh_locked();
        operation();
    }

    void append(const detail::FileRecord& record) {
        const std::string bytes = encode(record);
        try {
            file_.write(offset_, bytes);
        } catch (const Error&) {
            map_ = {};  // it holds what the file does not: read all again
            offset_ = head_.bytes.size();
            throw;
        }
        offset_ += bytes.size();
    }

    [[nodiscard]] std::vector<std::string> missing_of(std::span<const std::string> keys) {
        const std::lock_guard lock(mutex_);
        refresh();
        std::vector<std::string> missing;
        for (const std::string& key : keys) {
            if (map_.find(key) == nullptr) missing.push_back(key);
        }
        return missing;
    }

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

}  // namespace dptk
