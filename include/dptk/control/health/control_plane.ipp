#pragma once

#include "dptk/control/health/control_plane.hpp"

#include <cstdlib>
#include <exception>
#include <utility>

#include "dptk/control/health/failure_report.hpp"
#include "dptk/control/process/background_thread.hpp"
#include "dptk/core/detail/algorithms.hpp"
#include "dptk/core/detail/error_access.hpp"
#include "dptk/core/log.hpp"

namespace DPTK_NAMESPACE::detail {

DPTK_INLINE std::chrono::milliseconds make_progress(const Progress& progress) {
    return std::chrono::milliseconds(progress && progress() ? 1 : 200);
}

DPTK_INLINE std::string ControlPlane::status_key(int rank) {
    return text("status/", rank);
}

DPTK_INLINE std::string ControlPlane::left_key(int rank) {
    return text("left/", rank);
}

DPTK_INLINE std::string ControlPlane::ended_key(int rank) {
    return text("ended/", rank);
}

DPTK_INLINE std::shared_ptr<ControlPlane> ControlPlane::make(ControlPlaneOptions options,
                                                             std::shared_ptr<JobState> job_state) {
    auto plane = std::shared_ptr<ControlPlane>(new ControlPlane(std::move(options), std::move(job_state)));
    plane->job_state_->subscribe(plane);
    if (plane->size() > 1) Watchdog::get().watch(plane);
    return plane;
}

DPTK_INLINE std::string ControlPlane::label(int rank) const {
    const auto index = static_cast<std::size_t>(rank);
    if (index >= options_.peers.size()) return text("rank ", rank);
    return text("rank ", rank, " (", options_.peers[index], ")");
}

DPTK_INLINE void ControlPlane::open(const std::shared_ptr<CallTracker>& tracker) {
    const std::lock_guard lock(mutex_);
    channels_.push_back({tracker, {}, clock::now(), false});
    shortest_timeout_ = std::min(shortest_timeout_.load(), tracker->identity().timeout);
}

DPTK_INLINE void ControlPlane::look_often(std::chrono::milliseconds timeout) noexcept {
    std::chrono::milliseconds shortest = shortest_timeout_.load();
    while (timeout < shortest && !shortest_timeout_.compare_exchange_weak(shortest, timeout)) {
    }
}

DPTK_INLINE void ControlPlane::close(const std::shared_ptr<CallTracker>& tracker) noexcept {
    try {
        std::string last_status;
        {
            const std::lock_guard lock(mutex_);
            detail::erase_if(channels_, [&](const Channel& channel) { return channel.tracker == tracker; });
            ChannelStatus ended;
            ended.name = tracker->name();
            ended.sequence = tracker->look().sequence;
            ended.is_closed = true;
            add_history(ended, *tracker, tracker->look());
            closed_.push_back(std::move(ended));
            if (closed_.size() > channels_with_calls) closed_.rbegin()[channels_with_calls].calls.clear();
            if (closed_.size() > remembered_channels) closed_.erase(closed_.begin());
            if (!channels_.empty()) return;
            left_ = true;
            if (!options_.store || job_state_->failed()) return;
            last_status = to_text(RankStatus{0, closed_});
        }
        options_.store->set(left_key(rank()), last_status);
        options_.store->set_last_will("", "");
    } catch (const std::exception&) {
        // The store is lost, so no rank waits for this report.
    }
}

DPTK_INLINE bool ControlPlane::is_over() const noexcept {
    try {
        return job_state_->failed() || (options_.store && options_.store->find(abort_key));
    } catch (const std::exception&) {
        return true;
    }
}

DPTK_INLINE RankStatus ControlPlane::status(std::uint64_t beat) {
    const std::lock_guard lock(mutex_);
    const clock::time_point now = clock::now();
    RankStatus out{beat, closed_, progress_};
    const CallTracker* const awaited = program_.channel();
    for (Channel& channel : channels_) {
        refresh(channel, now);
        const CallTracker& tracker = *channel.tracker;
        out.channels.push_back({tracker.name(), channel.seen.sequence, channel.seen.active,
                                waited(channel, now), tracker.peer(channel.seen),
                                tracker.describe(channel.seen), channel.seen.active && &tracker == awaited,
                                tracker.carries_messages() ? 0 : channel.seen.hash});
        add_history(out.channels.back(), tracker, channel.seen);
    }
    return out;
}

DPTK_INLINE void ControlPlane::note_progress(const StepProgress& progress) {
    const std::lock_guard lock(mutex_);
    progress_ = progress;
}

DPTK_INLINE void ControlPlane::throw_verdict() const {
    if (!compares_calls() || size() == 1) return;
    const bool has_failed = job_state_->wait_until_failed(verdict_timeout);
    if (has_failed && job_state_->kind() == Failure::remote) job_state_->check();
}

DPTK_INLINE std::vector<NumberedCall> ControlPlane::calls(std::string_view channel, std::uint64_t after,
                                                          std::uint64_t until) {
    const std::lock_guard lock(mutex_);
    for (const Channel& open : channels_) {
        if (open.tracker->name() == channel) return calls_of(*open.tracker, after, until);
    }
    return {};
}

DPTK_INLINE std::vector<NumberedCall> ControlPlane::calls_of(const CallTracker& tracker, std::uint64_t after,
                                                             std::uint64_t until) {
    std::vector<NumberedCall> out;
    const std::uint64_t begun = tracker.look().sequence;
    const std::uint64_t lost = begun < CallHistory::kept ? 0 : begun - CallHistory::kept;
    for (std::uint64_t number = std::max(after, lost) + 1; number <= std::min(until, begun); ++number)
        out.push_back({number, tracker.describe_earlier(number).value_or(text("an error #", number))});
    return out;
}

DPTK_INLINE void ControlPlane::add_history(ChannelStatus& status, const CallTracker& tracker,
                                           const CallTracker::Snapshot& now) {
    const CallHistory* const history = tracker.history();
    if (history == nullptr) return;
    const bool is_in_last = now.active && now.hash != 0;
    if (is_in_last) status.active_mark = history->mark(now.sequence);
    status.marks = history->marks(now.sequence - (is_in_last ? 1 : 0));
    status.calls =
        calls_of(tracker, now.sequence < published_calls ? 0 : now.sequence - published_calls, now.sequence);
}

DPTK_INLINE void ControlPlane::monitored_barrier(CallTracker& channel, std::chrono::milliseconds timeout,
                                                 const Progress& progress) {
    const std::vector<int>& ranks = channel.identity().ranks;
    if (ranks.size() == 1) return;
    const std::shared_ptr<Store> store = options_.store->clone();
    const auto key = [&](std::uint64_t count, std::string_view what) {
        return text("barrier/", channel.name(), '/', count, '/', what);
    };
    const std::uint64_t count = channel.next_barrier();
    const std::string verdict_key = key(count, "verdict");
    store->set(key(count, std::to_string(rank())), "here");
    if (store->add(key(count, "arrived"), 1) == static_cast<std::int64_t>(ranks.size()))
        store->compare_and_set(verdict_key, "", "all");
    const std::string verdict = await_verdict(*store, verdict_key, timeout, progress, [&] {
        std::string missing;
        for (const int other : ranks) {
            if (!store->find(key(count, std::to_string(other))))
                missing += (missing.empty() ? "" : ", ") + label(other);
        }
        return missing.empty() ? std::string("all") : missing;
    });
    if (verdict != "all") {
        TimeoutError error(text("monitored_barrier: missing after ", duration_text(timeout), ": ", verdict));
        detail::ErrorAccess::mark_agreed(error);
        throw error;
    }
    if (rank() != ranks.front()) return;
    for (const int other : ranks) store->erase(key(count - 1, std::to_string(other)));
    store->erase(key(count - 1, "arrived"));
    store->erase(key(count - 1, "verdict"));
}

DPTK_INLINE FailureCause ControlPlane::find_missing(const CallTracker& channel,
                                                    const CallTracker::Snapshot& call) {
    constexpr int listed = 8;
    const int peer = channel.peer(call);
    FailureCause out;
    int missing = 0;
    for (const int other : channel.identity().ranks) {
        if (other == rank() || (peer >= 0 && other != peer)) continue;
        const std::optional<RankStatus> status = read_status(other);
        const ChannelStatus* theirs = status ? status->channel(channel.name()) : nullptr;
        if (!channel.carries_messages() && theirs != nullptr && theirs->sequence >= call.sequence) continue;
        if (++missing > listed) continue;
        out.ranks.push_back(other);
        out.text += text(out.text.empty() ? "" : "; ", label(other), ' ',
                         status ? status->describe(group_of(channel.name())) : "has not reported its status");
    }
    if (missing == 0) return {"all ranks have entered the call"};
    if (missing > listed) out.text += text("; and ", missing - listed, " more");
    if (!channel.carries_messages()) out.text.insert(0, "missing: ");
    return out;
}

DPTK_INLINE void ControlPlane::look() noexcept {
    try {
        look_at_channels();
        publish_status();
    } catch (const std::exception& error) {
        log(LogLevel::error, rank(), text("exception in the watchdog: ", error.what()));
    }
}

DPTK_INLINE std::chrono::milliseconds ControlPlane::interval() const noexcept {
    return std::clamp(shortest_timeout_.load() / 20, std::chrono::milliseconds(10),
                      std::chrono::milliseconds(500));
}

DPTK_INLINE void ControlPlane::wake() noexcept {
    if (left_) return;
    try {
        const FailureCause cause = job_state_->full_cause();
        if (!job_state_->is_elastic()) write_report(cause);  // otherwise this rank continues
        // Some launchers kill the other ranks as soon as one rank ends, so the cause is logged before it is
        // written to the store.
        if (options_.last_resort && job_state_->kind() != Failure::local) {
            log(LogLevel::error, rank(), cause.text);
            job_state_->mark_logged();
        }
        post(cause);
    } catch (const std::exception&) {
        // The store is lost. The other ranks detect that by themselves.
    }
}

DPTK_INLINE void ControlPlane::post(const FailureCause& cause) const {
    if (!options_.store || left_ || job_state_->kind() == Failure::remote) return;
    static_cast<void>(run_with_timeout(store_timeout, [store = options_.store, cause] {
        store->compare_and_set(abort_key, "", to_text(cause));
    }));
}

DPTK_INLINE void ControlPlane::on_terminate(const std::string& message) noexcept {
    job_state_->fail(uncaught_cause(rank(), message));
    try {
        // The thread that has found the failure may not have done it yet.
        write_report(job_state_->full_cause());
        post(job_state_->full_cause());
    } catch (const std::exception&) {
        // The store is lost. The other ranks detect that by themselves.
    }
    if (options_.before_terminate) options_.before_terminate();
}

DPTK_INLINE ControlPlane::ControlPlane(ControlPlaneOptions options, std::shared_ptr<JobState> job_state)
    : options_(std::move(options)), job_state_(std::move(job_state)), shortest_timeout_(options_.timeout) {}

DPTK_INLINE void ControlPlane::refresh(Channel& channel, clock::time_point now) {
    const CallTracker::Snapshot snapshot = channel.tracker->look();
    if (snapshot.sequence != channel.seen.sequence || snapshot.active != channel.seen.active) {
        channel.since = now;
        channel.warned = false;
    }
    channel.seen = snapshot;
}

DPTK_INLINE std::chrono::milliseconds ControlPlane::waited(const Channel& channel, clock::time_point now) {
    return std::chrono::duration_cast<std::chrono::milliseconds>(now - channel.since);
}

DPTK_INLINE std::chrono::milliseconds ControlPlane::timeout_of(const Channel& channel) {
    return channel.tracker->timeout();
}

DPTK_INLINE std::chrono::milliseconds ControlPlane::warning_delay(const Channel& channel) {
    return std::min<std::chrono::milliseconds>(timeout_of(channel) / 2, std::chrono::minutes(1));
}

DPTK_INLINE void ControlPlane::look_at_channels() {
    std::vector<Channel> late;
    {
        const std::lock_guard lock(mutex_);
        const clock::time_point now = clock::now();
        for (Channel& channel : channels_) {
            refresh(channel, now);
            if (!channel.seen.active || (job_state_->failed() && channel.tracker->is_abandoned())) continue;
            if (job_state_->failed() || (waited(channel, now) >= warning_delay(channel) && !channel.warned) ||
                waited(channel, now) >= timeout_of(channel)) {
                late.push_back(channel);
                channel.warned = true;
            }
        }
    }
    if (job_state_->failed()) return run_last_resort_if_stuck(!late.empty());
    for (const Channel& channel : late) report_late_call(channel);
}

DPTK_INLINE void ControlPlane::report_late_call(const Channel& channel) {
    const std::chrono::milliseconds time = waited(channel, clock::now());
    const std::string call = channel.tracker->describe(channel.seen);
    const FailureCause others = missing_or_problem(channel);
    const std::chrono::milliseconds timeout = timeout_of(channel);
    if (time >= timeout) {
        job_state_->fail({text("rank ", rank(), ": ", call, " has not completed within ",
                               duration_text(timeout), "; ", others.text),
                          others.ranks},
                         Failure::deadline);
    } else {
        log(LogLevel::warning, rank(),
            text(call, " has waited for ", seconds_text(time), " (timeout ", duration_text(timeout), "); ",
                 others.text));
    }
}

DPTK_INLINE FailureCause ControlPlane::missing_or_problem(const Channel& channel) {
    const auto answer = std::make_shared<FailureCause>();
    const auto ask = [self = shared_from_this(), answer, channel] {
        try {
            *answer = self->find_missing(*channel.tracker, channel.seen);
        } catch (const std::exception& error) {
            answer->text = error.what();
        }
    };
    if (run_with_timeout(store_timeout, ask)) return *answer;
    return {"the store of the control plane does not answer"};
}

DPTK_INLINE void ControlPlane::run_last_resort_if_stuck(bool calls_are_inside) {
    const clock::time_point now = clock::now();
    if (!calls_are_inside) {
        failed_since_ = clock::time_point::max();
    } else if (failed_since_ == clock::time_point::max()) {
        failed_since_ = now;
    } else if (now - failed_since_ >= grace && options_.last_resort) {
        options_.last_resort(job_state_->cause());
    }
}

DPTK_INLINE void ControlPlane::write_report(const FailureCause& cause) {
    const char* path = std::getenv("DPTK_ERROR_FILE");
    if (path == nullptr) return;
    const std::lock_guard lock(report_mutex_);
    if (std::exchange(is_reported_, true)) return;
    const FailureKind kind = job_state_->kind() != Failure::local ? FailureKind::consequence
                             : cause.is_agreed                    ? FailureKind::agreed
                                                                  : FailureKind::cause;
    write_failure_report(path, {kind, cause.text, cause.ranks});
}

DPTK_INLINE void ControlPlane::publish_status() {
    if (!options_.store || options_.has_heartbeat || job_state_->failed()) return;
    options_.store->set(status_key(rank()), to_text(status(0)));
}

DPTK_INLINE std::optional<RankStatus> ControlPlane::read_status(int other) {
    if (!options_.store) return std::nullopt;
    std::optional<std::string> text = options_.store->find(left_key(other));
    if (!text) text = options_.store->find(status_key(other));
    return text ? parse_rank_status(*text) : std::nullopt;
}

}  // namespace DPTK_NAMESPACE::detail
