#pragma once

#include "dptk/control/store/file_store.hpp"

#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <ctime>
#include <utility>

#include "dptk/core/detail/text.hpp"
#include "dptk/core/error.hpp"

namespace DPTK_NAMESPACE {

DPTK_INLINE std::shared_ptr<FileStore> FileStore::create(const std::string& path, std::string_view job) {
    check_names(path, job);
    while (true) {
        detail::StoreFile file = detail::open_store_file(path, O_CREAT);
        std::optional<Beginning> beginning = begin(file, job);
        if (!beginning) continue;
        return std::shared_ptr<FileStore>(
            new FileStore(std::move(file), std::move(*beginning), Role::creator));
    }
}

DPTK_INLINE std::shared_ptr<FileStore> FileStore::join(const std::string& path,
                                                       std::chrono::milliseconds timeout,
                                                       std::string_view job) {
    check_names(path, job);
    const detail::Deadline deadline(timeout);
    Backoff pause;
    while (true) {
        detail::StoreFile file = detail::open_store_file(path, 0);
        Inspection inspection = file.is_open() ? inspect(file, job) : Inspection{};
        if (inspection.found == Found::ours) {
            return std::shared_ptr<FileStore>(
                new FileStore(std::move(file), {std::move(*inspection.head), {}}, Role::member));
        }
        if (deadline.passed()) throw_join_timeout(path, inspection, timeout);
        pause.sleep(deadline);
    }
}

DPTK_INLINE FileStore::~FileStore() {
    if (role_ != Role::creator) return;
    try {
        const auto lock = file_.lock(detail::FileAccess::write);
        read_records();
        if (closed_ || file_.read(0, head_.bytes.size()) != head_.bytes) return;
        if (file_.is_current()) ::unlink(file_.path().c_str());
        file_.write(offset_, encode(detail::FileRecord{}));
    } catch (const Error&) {
        // The next run replaces the stale file.
    }
}

DPTK_INLINE void FileStore::set(std::string_view key, std::string_view value) {
    write([&] {
        map_.set(key, value);
        append({detail::FileRecordKind::set, key, value});
    });
}

DPTK_INLINE std::string FileStore::get(std::string_view key, std::chrono::milliseconds timeout) {
    const detail::Deadline deadline(timeout);
    Backoff pause;
    while (true) {
        const bool last = deadline.passed();
        if (std::optional<std::string> value = find(key)) return std::move(*value);
        const std::string missing(key);
        if (last) detail::throw_missing_keys({&missing, 1}, timeout, where());
        pause.sleep(deadline);
    }
}

DPTK_INLINE std::optional<std::string> FileStore::find(std::string_view key) {
    detail::check_store_key(key);
    const std::lock_guard lock(mutex_);
    refresh();
    const std::string* value = map_.find(key);
    return value == nullptr ? std::nullopt : std::optional(*value);
}

DPTK_INLINE std::int64_t FileStore::add(std::string_view key, std::int64_t amount) {
    std::int64_t sum = 0;
    write([&] {
        sum = map_.add(key, amount);
        append({detail::FileRecordKind::set, key, std::to_string(sum)});
    });
    return sum;
}

DPTK_INLINE std::string FileStore::compare_and_set(std::string_view key, std::string_view expected,
                                                   std::string_view desired) {
    detail::check_store_key(key);
    std::string value;
    write([&] {
        value = map_.compare_and_set(key, expected, desired);
        if (value == desired) append({detail::FileRecordKind::set, key, desired});
    });
    return value;
}

DPTK_INLINE void FileStore::wait(std::span<const std::string> keys, std::chrono::milliseconds timeout) {
    for (const std::string& key : keys) detail::check_store_key(key);
    const detail::Deadline deadline(timeout);
    Backoff pause;
    while (true) {
        const bool last = deadline.passed();
        const std::vector<std::string> missing = missing_of(keys);
        if (missing.empty()) return;
        if (last) detail::throw_missing_keys(missing, timeout, where());
        pause.sleep(deadline);
    }
}

DPTK_INLINE bool FileStore::erase(std::string_view key) {
    bool erased = false;
    write([&] {
        erased = map_.erase(key);
        if (erased) append({detail::FileRecordKind::erase, key, {}});
    });
    return erased;
}

DPTK_INLINE void FileStore::set_last_will(std::string_view key, std::string_view value) {
    if (!key.empty()) detail::check_store_key(key);
    detail::check_store_value(key, value);
}

DPTK_INLINE std::shared_ptr<Store> FileStore::clone() {
    detail::StoreFile file = detail::open_store_file(file_.path(), 0);
    if (!file.is_open()) throw_lost("it has been removed");
    std::shared_ptr<FileStore> copy(new FileStore(std::move(file), {head_, {}}, Role::member));
    const std::lock_guard lock(copy->mutex_);
    copy->refresh();
    return copy;
}

DPTK_INLINE void FileStore::Backoff::sleep(const detail::Deadline& deadline) {
    detail::AwakeClock::sleep_for(std::min(next_, deadline.left()));
    next_ = std::min(next_ * 2, std::chrono::milliseconds(50));
}

DPTK_INLINE FileStore::FileStore(detail::StoreFile file, Beginning beginning, Role role)
    : file_(std::move(file)),
      role_(role),
      head_(std::move(beginning.head)),
      replaced_(std::move(beginning.replaced)),
      offset_(head_.bytes.size()) {}

DPTK_INLINE void FileStore::check_names(const std::string& path, std::string_view job) {
    if (path.empty()) throw ArgumentError("the path of a file store is empty");
    if (job.size() > 256) {
        throw ArgumentError(
            detail::text("the job name of a file store has ", job.size(), " bytes: expected at most 256"));
    }
}

DPTK_INLINE detail::StoreFileOrigin FileStore::this_run(std::string_view job) {
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

DPTK_INLINE void FileStore::check_is_store(const detail::StoreFile& file, std::string_view bytes) {
    if (detail::may_be_store_file(bytes)) return;
    throw ArgumentError(detail::text("the file ", file.path(),
                                     " already exists and is not a dptk store; it is left unchanged"));
}

DPTK_INLINE std::optional<FileStore::Beginning> FileStore::begin(const detail::StoreFile& file,
                                                                 std::string_view job) {
    const auto lock = file.lock(detail::FileAccess::write);
    if (!file.is_current()) return std::nullopt;
    const std::string bytes = file.read(0, most_head_bytes);
    check_is_store(file, bytes);
    const std::optional<detail::StoreFileHead> old = detail::parse_head(bytes);
    if (!file.try_lock_creator()) {
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

DPTK_INLINE FileStore::Inspection FileStore::inspect(const detail::StoreFile& file, std::string_view job) {
    const auto lock = file.lock(detail::FileAccess::read);
    if (!file.is_current()) return {};
    const std::string bytes = file.read(0, most_head_bytes);
    if (bytes.empty()) return {};
    check_is_store(file, bytes);
    Inspection inspection{Found::stale, detail::parse_head(bytes)};
    if (!file.is_creator_alive() || !inspection.head) return inspection;
    inspection.found = inspection.head->origin.job == job ? Found::ours : Found::other_job;
    return inspection;
}

DPTK_INLINE void FileStore::throw_join_timeout(const std::string& path, const Inspection& inspection,
                                               std::chrono::milliseconds timeout) {
    const std::string within = " within " + detail::duration_text(timeout);
    const std::string origin = detail::origin_text(inspection.head);
    if (inspection.found == Found::stale) {
        throw TimeoutError(detail::text("the store ", path, " holds only the state of an earlier run (",
                                        origin, "); rank 0 of this job has not joined", within));
    }
    if (inspection.found == Found::other_job) {
        throw TimeoutError(detail::text("the store ", path, " is in use by another job (", origin,
                                        "); rank 0 of this job has not joined", within));
    }
    throw TimeoutError(detail::text("the store ", path, " has not been created by rank 0", within));
}

DPTK_INLINE void FileStore::throw_lost(std::string_view reason) const {
    throw PeerLostError(detail::text("lost the store ", file_.path(), ": ", reason));
}

DPTK_INLINE void FileStore::refresh() {
    const auto lock = file_.lock(detail::FileAccess::read);
    refresh_locked();
}

DPTK_INLINE void FileStore::refresh_locked() {
    if (file_.read(0, head_.bytes.size()) != head_.bytes) throw_lost("another run has replaced it");
    read_records();
    if (closed_) throw_lost("rank 0 has closed it");
    if (role_ == Role::creator || file_.is_creator_alive()) return;
    throw_lost(detail::text("its creator has ended (", detail::origin_text(head_), ")"));
}

DPTK_INLINE void FileStore::read_records() {
    const std::string bytes = file_.read(offset_);
    std::string_view left = bytes;
    while (const auto record = detail::parse_record(left)) {
        apply(record->first);
        left.remove_prefix(record->second);
        offset_ += record->second;
    }
}

DPTK_INLINE void FileStore::apply(const detail::FileRecord& record) {
    if (record.kind == detail::FileRecordKind::set) map_.set(record.key, record.value);
    if (record.kind == detail::FileRecordKind::erase) map_.erase(record.key);
    if (record.kind == detail::FileRecordKind::closed) closed_ = true;
}

DPTK_INLINE void FileStore::append(const detail::FileRecord& record) {
    const std::string bytes = encode(record);
    try {
        file_.write(offset_, bytes);
    } catch (const Error&) {
        map_ = {};  // the map differs from the file, so all records must be read again
        offset_ = head_.bytes.size();
        throw;
    }
    offset_ += bytes.size();
}

DPTK_INLINE std::vector<std::string> FileStore::missing_of(std::span<const std::string> keys) {
    const std::lock_guard lock(mutex_);
    refresh();
    std::vector<std::string> missing;
    for (const std::string& key : keys) {
        if (map_.find(key) == nullptr) missing.push_back(key);
    }
    return missing;
}

}  // namespace DPTK_NAMESPACE
