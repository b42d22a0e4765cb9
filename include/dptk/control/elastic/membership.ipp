#pragma once

#include "dptk/control/elastic/membership.hpp"

#include <algorithm>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <optional>
#include <utility>

#include "dptk/control/elastic/membership_keys.hpp"
#include "dptk/control/health/control_plane.hpp"
#include "dptk/control/health/failure_report.hpp"
#include "dptk/control/process/background_thread.hpp"
#include "dptk/control/process/deadline.hpp"
#include "dptk/control/store/prefix_store.hpp"
#include "dptk/core/detail/text.hpp"
#include "dptk/core/log.hpp"

namespace DPTK_NAMESPACE::detail {

/// What the thread that sends heartbeats shares with its Membership.
struct Membership::Heartbeat {
    std::shared_ptr<Store> store;
    MemberId id;
    std::chrono::milliseconds interval;
    std::mutex mutex = {};
    std::condition_variable changed = {};
    bool has_ended = false;
    std::string failure = {};  // why the store is lost
    std::string second = {};   // the address of the second store, if it is known
};

/// Thrown if no store can help: the members that are left cannot continue.
class JobOverError : public PeerLostError {
  public:
    using PeerLostError::PeerLostError;
};

DPTK_INLINE Membership::Membership(const MembershipOptions& options)
    : store_(options.store),
      open_second_(options.open_second),
      heartbeat_timeout_(options.heartbeat_timeout),
      uncaught_exceptions_(std::uncaught_exceptions()) {
    vote_.member = options.id > 0 ? options.id : store_->add(MembershipKeys::members, 1);
    vote_key_ = MembershipKeys::vote(id());
    arrive();
}

DPTK_INLINE void Membership::arrive() {
    const std::int64_t arrival = store_->add(MembershipKeys::arrivals, 1);
    store_->set(MembershipKeys::arrival(arrival), text(id()));
    const auto interval = std::clamp<std::chrono::milliseconds>(
        heartbeat_timeout_ / 5, std::chrono::milliseconds(20), std::chrono::milliseconds(1000));
    heartbeat_ = std::make_shared<Heartbeat>(store_->clone(), id(), interval);
    start_background_thread([heartbeat = heartbeat_] { beat(*heartbeat); }).detach();
}

DPTK_INLINE void Membership::end_heartbeat() {
    {
        const std::lock_guard lock(heartbeat_->mutex);
        heartbeat_->has_ended = true;
    }
    heartbeat_->changed.notify_all();
}

DPTK_INLINE void Membership::note_second(Heartbeat& heartbeat, Store& store) {
    std::string second = store.find(MembershipKeys::second).value_or("");
    const std::lock_guard lock(heartbeat.mutex);
    heartbeat.second = std::move(second);
}

DPTK_INLINE std::string Membership::take_second() {
    const std::lock_guard lock(heartbeat_->mutex);
    return std::exchange(heartbeat_->second, {});
}

DPTK_INLINE Membership::~Membership() {
    end_heartbeat();
    const bool unwinds = std::uncaught_exceptions() > uncaught_exceptions_;
    try {
        store_->compare_and_set(
            MembershipKeys::ended(id()), "",
            unwinds ? "has left the job because of an exception" : MembershipKeys::finished);
    } catch (const std::exception&) {
        // The store is lost, so nobody waits for this report.
    }
}

DPTK_INLINE void Membership::beat(Heartbeat& heartbeat) noexcept {
    try {
        const std::string key = MembershipKeys::beat(heartbeat.id);
        heartbeat.store->set_last_will(MembershipKeys::lost(heartbeat.id), "lost");
        for (std::int64_t beats = 1;; ++beats) {
            heartbeat.store->set(key, text(beats));
            note_second(heartbeat, *heartbeat.store);
            std::unique_lock lock(heartbeat.mutex);
            if (heartbeat.changed.wait_for(lock, heartbeat.interval, [&] { return heartbeat.has_ended; }))
                return;
        }
    } catch (const std::exception& error) {
        const std::lock_guard lock(heartbeat.mutex);
        heartbeat.failure = error.what();
    }
}

DPTK_INLINE void Membership::check_heartbeat() {
    const std::lock_guard lock(heartbeat_->mutex);
    if (!heartbeat_->failure.empty()) throw PeerLostError(heartbeat_->failure);
}

DPTK_INLINE std::int64_t Membership::latest() {
    return number_of_generation(store_->find(MembershipKeys::latest));
}

DPTK_INLINE bool Membership::has_begun() {
    return latest() > 0;
}

DPTK_INLINE const Generation& Membership::join() {
    while (true) {
        try {
            return join_in_store();
        } catch (const JobOverError&) {
            throw;
        } catch (const PeerLostError& loss) {
            move_to_second(loss);
        }
    }
}

DPTK_INLINE void Membership::move_to_second(const PeerLostError& loss) {
    const std::string address = take_second();
    if (address.empty() || !open_second_) throw;
    log(LogLevel::info, -1, text(loss.what(), "; going to the job's second store at ", address));
    end_heartbeat();
    try {
        store_ = open_second_(address);
    } catch (const Error& error) {
        throw PeerLostError(
            text(loss.what(), ", and the second store of the job cannot be reached: ", error.what()));
    }
    arrive();
}

DPTK_INLINE const Generation& Membership::join_in_store() {
    while (true) {
        vote_.after = latest();
        vote_.seen = std::max(vote_.seen, vote_.after);
        publish_vote();
        const NextGeneration formed = next();
        if (!formed.generation.contains(id())) continue;  // it was formed before this vote was read
        note_second(*heartbeat_, *store_);  // all members know it: it was there before its launcher's members
        vote_.accept(formed);
        publish_vote();  // before the members connect: see MembershipKeys::vote()
        generation_ = formed.generation;
        return generation_;
    }
}

DPTK_INLINE NextGeneration Membership::next() {
    constexpr std::chrono::seconds slice{1};
    const Deadline takeover(2 * heartbeat_timeout_);
    while (true) {
        check_heartbeat();  // without them, this process is not let in
        try {
            const std::string found = store_->get(MembershipKeys::next(vote_.after), slice);
            if (const std::optional<NextGeneration> next = NextGeneration::parse(found)) return *next;
        } catch (const TimeoutError&) {
        }
        if (const std::optional<std::string> why = store_->find(MembershipKeys::over))
            throw JobOverError("the elastic job has ended: " + *why);
        if (vote_.after == 0 && takeover.passed() && store_->find(MembershipKeys::standby))
            throw JobOverError(
                "this process has lost the store of the elastic job, but the others have not: it continues "
                "without this process");
    }
}

DPTK_INLINE std::shared_ptr<Store> Membership::store_of_generation() const {
    return std::make_shared<PrefixStore>(store_->clone(), MembershipKeys::generation(generation_.number));
}

DPTK_INLINE std::optional<std::string> Membership::why_ended() {
    try {
        PrefixStore here(store_, MembershipKeys::generation(generation_.number));
        const std::optional<std::string> cause = here.find(ControlPlane::abort_key);
        return cause ? std::optional(parse_cause(*cause).text) : std::nullopt;
    } catch (const PeerLostError& error) {
        return error.what();
    }
}

DPTK_INLINE void Membership::note_finishing() {
    report([&] { note(MembershipKeys::finishing); });
}

DPTK_INLINE void Membership::note_formed() {
    vote_.note_formed(generation_);
    report([&] {
        publish_vote();
        if (generation_.members.front() == id()) note(MembershipKeys::formed);
    });
}

DPTK_INLINE void Membership::note(std::string_view key) {
    PrefixStore(store_, MembershipKeys::generation(generation_.number)).set(key, "");
}

template <class Call>
void Membership::report(Call&& call) {
    try {
        call();
    } catch (const PeerLostError&) {
        // The store is lost. The generation ends with it, and join() continues in the second store.
    }
}

}  // namespace DPTK_NAMESPACE::detail
