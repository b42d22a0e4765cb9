/// The control plane stands beside a group's transport: it knows what every channel of this rank is doing,
/// notices calls that take too long, says for whom they wait, and carries the reason of a failure to all
/// ranks through a store. It works from aside: a call costs it a few stores to memory.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "dptk/control/activity.hpp"
#include "dptk/control/deadline.hpp"
#include "dptk/control/failure_note.hpp"
#include "dptk/control/job_health.hpp"
#include "dptk/control/quiet_thread.hpp"
#include "dptk/control/rank_status.hpp"
#include "dptk/control/store.hpp"
#include "dptk/control/terminate.hpp"
#include "dptk/control/watchdog.hpp"
#include "dptk/core/error.hpp"
#include "dptk/core/log.hpp"

namespace dptk {

/// Goes on with what the program has started, for a moment; returns whether there is any. Null where all goes
/// on by itself.
using Progress = std::function<bool()>;

namespace detail {

/// For how long to wait in a store before progress is due again.
[[nodiscard]] inline std::chrono::milliseconds make_progress(const Progress& progress) {
    return std::chrono::milliseconds(progress && progress() ? 1 : 200);
}

}  // namespace detail

struct ControlPlaneOptions {
    int rank = 0;
    int size = 1;
    /// Through which the ranks see each other's status; null where they do not, and only deadlines are kept.
    std::shared_ptr<Store> store = nullptr;
    /// Of every call.
    std::chrono::milliseconds timeout = default_timeout;
    /// Who the ranks are, for messages: "host a, process 17". Empty where there is nothing to tell.
    std::vector<std::string> peers = {};
    /// Whether a Heartbeat publishes this rank's status; otherwise the watchdog does, and the store must not
    /// block.
    bool has_heartbeat = false;
    /// Called when the job has failed and a call is still inside a transport that cannot be woken: ends the
    /// process.
    std::function<void(const std::string& cause)> last_resort = {};
    /// Called after the reason has been posted, and before an uncaught exception ends the process.
    std::function<void()> before_terminate = {};
};

class ControlPlane final : public Watched,
                           public Wakeable,
                           public LastWords,
                           public std::enable_shared_from_this<ControlPlane> {
  public:
    using clock = std::chrono::steady_clock;

    /// Under the names of these keys ranks find each other's state in the store.
    [[nodiscard]] static std::string status_key(int rank) { return detail::text("status/", rank); }
    [[nodiscard]] static std::string left_key(int rank) { return detail::text("left/", rank); }
    /// There once a rank's heartbeat has ended: the rank knows why the job ends, or is gone itself.
    [[nodiscard]] static std::string ended_key(int rank) { return detail::text("ended/", rank); }
    static constexpr std::string_view abort_key = "abort";

    [[nodiscard]] static std::shared_ptr<ControlPlane> make(ControlPlaneOptions options,
                                                            std::shared_ptr<JobHealth> health) {
        auto plane = std::shared_ptr<ControlPlane>(new ControlPlane(std::move(options), std::move(health)));
        plane->health_->subscribe(plane);
        if (plane->size() > 1) Watchdog::get().watch(plane);
        return plane;
    }

    [[nodiscard]] int rank() const noexcept override { return options_.rank; }
    [[nodiscard]] int size() const noexcept { return options_.size; }
    [[nodiscard]] const std::shared_ptr<JobHealth>& health() const noexcept { return health_; }
    [[nodiscard]] std::chrono::milliseconds timeout() const noexcept { return options_.timeout; }

    /// Whether the ranks see each other's state, as monitored_barrier needs.
    [[nodiscard]] bool has_store() const noexcept { return options_.store != nullptr; }

    /// Null where there is none. Threads that wait in it need a clone.
    [[nodiscard]] const std::shared_ptr<Store>& store() const noexcept { return options_.store; }

    /// "rank 2 (host b, process 17)"
    [[nodiscard]] std::string label(int rank) const {
        const auto index = static_cast<std::size_t>(rank);
        if (index >= options_.peers.size()) return detail::text("rank ", rank);
        return detail::text("rank ", rank, " (", options_.peers[index], ")");
    }

    /// A channel of this rank begins. Its name is the same on all ranks.
    void open(const std::shared_ptr<Activity>& activity) {
        const std::lock_guard lock(mutex_);
        channels_.push_back({activity, {}, clock::now(), false});
        shortest_timeout_ = std::min(shortest_timeout_.load(), activity->identity().timeout);
    }

    /// It ends; when it was the last one, the others learn that this rank will not come again. Does not
    /// throw.
    void close(const std::shared_ptr<Activity>& activity) noexcept {
        try {
            std::string farewell;
            {
                const std::lock_guard lock(mutex_);
                std::erase_if(channels_,
                              [&](const Channel& channel) { return channel.activity == activity; });
                ChannelStatus ended;
                ended.name = activity->name();
                ended.sequence = activity->look().sequence;
                closed_.push_back(std::move(ended));
                if (closed_.size() > remembered_channels) closed_.erase(closed_.begin());
                if (!channels_.empty()) return;
                left_ = true;
                if (!options_.store || health_->failed()) return;
                farewell = to_text(RankStatus{0, closed_});
            }
            options_.store->set(left_key(rank()), farewell);
            options_.store->set_last_will("", "");
        } catch (const std::exception&) {
            // The store is gone, and with it those who would want to know.
        }
    }

    /// Whether the last channel has closed: what happens to the job is no concern of this rank's any more.
    [[nodiscard]] bool has_left() const noexcept { return left_; }

    /// Whether all is over for a rank that has left: the job has failed since, or its store is gone.
    [[nodiscard]] bool is_over() const noexcept {
        try {
            return health_->failed() || (options_.store && options_.store->find(abort_key));
        } catch (const std::exception&) {
            return true;
        }
    }

    /// What this rank's channels are doing, now.
    [[nodiscard]] RankStatus status(std::uint64_t beat) {
        const std::lock_guard lock(mutex_);
        const clock::time_point now = clock::now();
        RankStatus out{beat, closed_};
        for (Channel& channel : channels_) {
            refresh(channel, now);
            const Activity& activity = *channel.activity;
            out.channels.push_back({activity.name(), channel.seen.sequence, channel.seen.active,
                                    waited(channel, now), activity.peer(channel.seen),
                                    activity.describe(channel.seen)});
        }
        return out;
    }

    /// Blocks until all ranks of the channel have called it, for at most `timeout`. Then all that have come,
    /// and those that come later, throw a TimeoutError that names every missing rank; it is agreed, and the
    /// group stays usable. Needs has_store(). Collective.
    void monitored_barrier(Activity& channel, std::chrono::milliseconds timeout,
                           const Progress& progress = nullptr) {
        const std::vector<int>& ranks = channel.identity().ranks;
        if (ranks.size() == 1) return;
        const std::shared_ptr<Store> store = options_.store->clone();
        const auto key = [&](std::uint64_t count, std::string_view what) {
            return detail::text("barrier/", channel.name(), '/', count, '/', what);
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
            TimeoutError error(detail::text("monitored_barrier: missing after ",
                                            detail::duration_text(timeout), ": ", verdict));
            error.mark_agreed();
            throw error;
        }
        if (rank() != ranks.front()) return;
        for (const int other : ranks) store->erase(key(count - 1, std::to_string(other)));
        store->erase(key(count - 1, "arrived"));
        store->erase(key(count - 1, "verdict"));
    }

    /// For whom this rank waits in a call on a channel: "not there: rank 1 (host b) is in broadcast(...) #4
    /// for 3.0 s".
    [[nodiscard]] std::string missing_text(const Activity& channel, const Activity::Snapshot& call) {
        constexpr int listed = 8;
        const int peer = channel.peer(call);
        std::string out;
        int missing = 0;
        for (const int other : channel.identity().ranks) {
            if (other == rank() || (peer >= 0 && other != peer)) continue;
            const std::optional<RankStatus> status = read_status(other);
            const ChannelStatus* theirs = status ? status->channel(channel.name()) : nullptr;
            if (!channel.carries_messages() && theirs != nullptr && theirs->sequence >= call.sequence)
                continue;
            if (++missing > listed) continue;
            out += detail::text(out.empty() ? "" : "; ", label(other), " ", what_it_does(status));
        }
        if (missing == 0) return "all ranks have come to it";
        if (missing > listed) out += detail::text("; and ", missing - listed, " more");
        return channel.carries_messages() ? out : "not there: " + out;
    }

    void look() noexcept override {
        try {
            look_at_channels();
            publish_status();
        } catch (const std::exception& error) {
            log(LogLevel::error, rank(), detail::text("the watchdog: ", error.what()));
        }
    }

    [[nodiscard]] std::chrono::milliseconds interval() const noexcept override {
        return std::clamp(shortest_timeout_.load() / 20, std::chrono::milliseconds(10),
                          std::chrono::milliseconds(500));
    }

    /// The job has failed: tells the other ranks, and the launcher.
    void wake() noexcept override {
        if (left_) return;
        try {
            const std::string cause = health_->cause();
            leave_note(cause);
            // Some launchers kill the survivors of a lost rank at once: whoever can tells its name before.
            if (options_.last_resort && health_->kind() != Failure::here) log(LogLevel::error, rank(), cause);
            if (options_.store && health_->kind() != Failure::elsewhere) {
                static_cast<void>(detail::run_for(store_patience, [store = options_.store, cause] {
                    store->compare_and_set(abort_key, "", cause);
                }));
            }
        } catch (const std::exception&) {
            // The store is gone: the other ranks notice that by themselves.
        }
    }

    /// Where it has been registered by hear_last_words.
    void on_terminate(const std::string& message) noexcept override {
        health_->fail(detail::text("rank ", rank(), ": ", message));
        if (options_.before_terminate) options_.before_terminate();
    }

  private:
    struct Channel {
        std::shared_ptr<Activity> activity;
        Activity::Snapshot seen;
        clock::time_point since;
        bool warned;
    };

    /// How many closed channels the others can still ask about.
    static constexpr std::size_t remembered_channels = 64;
    /// How long a store that cannot be reached may hold this rank up.
    static constexpr std::chrono::milliseconds store_patience{1000};
    /// How long a call may take to end by itself after the job has failed.
    static constexpr std::chrono::milliseconds grace{1000};

    ControlPlane(ControlPlaneOptions options, std::shared_ptr<JobHealth> health)
        : options_(std::move(options)), health_(std::move(health)), shortest_timeout_(options_.timeout) {}

    static void refresh(Channel& channel, clock::time_point now) {
        const Activity::Snapshot snapshot = channel.activity->look();
        if (snapshot.sequence != channel.seen.sequence || snapshot.active != channel.seen.active) {
            channel.since = now;
            channel.warned = false;
        }
        channel.seen = snapshot;
    }

    [[nodiscard]] static std::chrono::milliseconds waited(const Channel& channel, clock::time_point now) {
        return std::chrono::duration_cast<std::chrono::milliseconds>(now - channel.since);
    }

    [[nodiscard]] static std::chrono::milliseconds timeout_of(const Channel& channel) {
        return channel.activity->identity().timeout;
    }

    [[nodiscard]] static std::chrono::milliseconds patience(const Channel& channel) {
        return std::min<std::chrono::milliseconds>(timeout_of(channel) / 2, std::chrono::minutes(1));
    }

    void look_at_channels() {
        std::vector<Channel> late;
        {
            const std::lock_guard lock(mutex_);
            const clock::time_point now = clock::now();
            for (Channel& channel : channels_) {
                refresh(channel, now);
                if (!channel.seen.active) continue;
                if (health_->failed() || (waited(channel, now) >= patience(channel) && !channel.warned) ||
                    waited(channel, now) >= timeout_of(channel)) {
                    late.push_back(channel);
                    channel.warned = true;
                }
            }
        }
        if (health_->failed()) return end_what_cannot_be_woken(!late.empty());
        for (const Channel& channel : late) complain(channel);
    }

    void complain(const Channel& channel) {
        const std::chrono::milliseconds time = waited(channel, clock::now());
        const std::string call = channel.activity->describe(channel.seen);
        const std::string others = missing_or_problem(channel);
        const std::chrono::milliseconds timeout = timeout_of(channel);
        if (time >= timeout) {
            health_->fail(detail::text("rank ", rank(), ": ", call, " has not completed within ",
                                       detail::duration_text(timeout), "; ", others),
                          Failure::deadline);
        } else {
            log(LogLevel::warning, rank(),
                detail::text(call, " has waited for ", detail::seconds_text(time), " of at most ",
                             detail::duration_text(timeout), "; ", others));
        }
    }

    /// The deadline holds whether or not the store can say for whom the call waits.
    [[nodiscard]] std::string missing_or_problem(const Channel& channel) {
        const auto answer = std::make_shared<std::string>();
        const auto ask = [self = shared_from_this(), answer, channel] {
            try {
                *answer = self->missing_text(*channel.activity, channel.seen);
            } catch (const std::exception& error) {
                *answer = error.what();
            }
        };
        if (detail::run_for(store_patience, ask)) return *answer;
        return "the store of the control plane does not answer";
    }

    void end_what_cannot_be_woken(bool calls_are_inside) {
        const clock::time_point now = clock::now();
        if (!calls_are_inside) {
            failed_since_ = clock::time_point::max();
        } else if (failed_since_ == clock::time_point::max()) {
            failed_since_ = now;
        } else if (now - failed_since_ >= grace && options_.last_resort) {
            options_.last_resort(health_->cause());
        }
    }

    /// A launcher that tells the rank that failed first from the others names a file for it.
    void leave_note(const std::string& cause) const {
        const char* path = std::getenv("DPTK_ERROR_FILE");
        if (path == nullptr) return;
        const bool own = health_->kind() == Failure::here;
        write_failure_note(path, {own ? FailureKind::cause : FailureKind::consequence, cause});
    }

    void publish_status() {
        if (!options_.store || options_.has_heartbeat || health_->failed()) return;
        options_.store->set(status_key(rank()), to_text(status(0)));
    }

    [[nodiscard]] std::optional<RankStatus> read_status(int other) {
        if (!options_.store) return std::nullopt;
        std::optional<std::string> text = options_.store->find(left_key(other));
        if (!text) text = options_.store->find(status_key(other));
        return text ? parse_rank_status(*text) : std::nullopt;
    }

    [[nodiscard]] static std::string what_it_does(const std::optional<RankStatus>& status) {
        if (!status) return "has not been heard of";
        const ChannelStatus* latest = nullptr;
        for (const ChannelStatus& channel : status->channels) {
            if (channel.active)
                return detail::text("is in ", channel.call, " for ", detail::seconds_text(channel.duration));
            if (latest == nullptr || channel.duration < latest->duration) latest = &channel;
        }
        if (latest == nullptr || latest->call.empty()) return "has left its process group";
        return detail::text("is in no call for ", detail::seconds_text(latest->duration));
    }

    template <class Missing>
    std::string await_verdict(Store& store, const std::string& key, std::chrono::milliseconds timeout,
                              const Progress& progress, Missing&& missing) {
        const detail::Deadline deadline(timeout);
        while (!deadline.passed()) {
            health_->check();
            try {
                return store.get(key, std::min(deadline.left(), detail::make_progress(progress)));
            } catch (const TimeoutError&) {
            }
        }
        return store.compare_and_set(key, "", missing());
    }

    ControlPlaneOptions options_;
    std::shared_ptr<JobHealth> health_;
    std::atomic<std::chrono::milliseconds> shortest_timeout_;
    std::mutex mutex_;
    std::vector<Channel> channels_;
    std::vector<ChannelStatus> closed_;
    std::atomic<bool> left_ = false;
    clock::time_point failed_since_ = clock::time_point::max();
};

}  // namespace dptk
