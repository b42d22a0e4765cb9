#pragma once

#include "dptk/control/health/heartbeat.hpp"

#include <algorithm>
#include <cstdint>
#include <exception>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "dptk/control/health/call_tracker.hpp"
#include "dptk/control/health/wait_cycle.hpp"
#include "dptk/control/process/background_thread.hpp"
#include "dptk/core/detail/algorithms.hpp"

namespace DPTK_NAMESPACE::detail {

DPTK_INLINE RankMonitor::RankMonitor(std::vector<std::string> labels,
                                     std::chrono::milliseconds heartbeat_timeout, clock::time_point now)
    : labels_(std::move(labels)), timeout_(heartbeat_timeout), ranks_(labels_.size(), Rank{.heard = now}) {}

DPTK_INLINE std::optional<FailureCause> RankMonitor::look(Store& store, clock::time_point now) {
    const std::ptrdiff_t left_before = count_left();
    for (std::size_t i = 0; i < ranks_.size(); ++i) read(store, static_cast<int>(i), now);
    if (count_left() != left_before) {
        for (Rank& rank : ranks_) rank.beats_since_departure = 0;
    }
    if (std::optional<FailureCause> silent = find_silent(now)) return silent;
    std::optional<FailureCause> earlier = find_earlier_mismatch(store);
    if (difference_) return earlier;  // what the others would find is a consequence
    if (std::optional<FailureCause> stuck = find_stuck_rank()) return stuck;
    if (std::optional<FailureCause> mismatch = find_mismatch()) return mismatch;
    return find_cycle();
}

DPTK_INLINE const ChannelStatus* RankMonitor::Rank::awaited() const noexcept {
    const auto found = detail::find(status.channels, true, &ChannelStatus::is_awaited);
    return found == status.channels.end() ? nullptr : &*found;
}

DPTK_INLINE bool RankMonitor::all_have_left() const {
    return detail::all_of(ranks_, [](const Rank& rank) { return rank.left; });
}

DPTK_INLINE std::ptrdiff_t RankMonitor::count_left() const {
    return detail::count_if(ranks_, [](const Rank& rank) { return rank.left; });
}

DPTK_INLINE void RankMonitor::read(Store& store, int index, clock::time_point now) {
    Rank& rank = ranks_[static_cast<std::size_t>(index)];
    if (rank.left) return;
    std::optional<std::string> text = store.find(ControlPlane::left_key(index));
    rank.left = text.has_value();
    if (!text) text = store.find(ControlPlane::status_key(index));
    std::optional<RankStatus> status = text ? parse_rank_status(*text) : std::nullopt;
    const bool beats = status && status->beat != rank.status.beat;
    if (beats) ++rank.beats_since_departure;
    if (beats) rank.heard = now;
    if (!status) return;
    const ChannelStatus* const before = rank.awaited();
    const std::string name = before == nullptr ? std::string() : before->name;
    const std::uint64_t sequence = before == nullptr ? 0 : before->sequence;
    rank.status = std::move(*status);
    const ChannelStatus* const here = rank.awaited();
    const bool is_same = here != nullptr && here->name == name && here->sequence == sequence;
    if (beats || !is_same) rank.beats_in_call = is_same ? rank.beats_in_call + 1 : 0;
}

DPTK_INLINE std::optional<FailureCause> RankMonitor::find_silent(clock::time_point now) const {
    const auto silent_for = [&](const Rank& rank, std::chrono::milliseconds time) {
        return !rank.left && now - rank.heard > time;
    };
    if (detail::none_of(ranks_, [&](const Rank& rank) { return silent_for(rank, timeout_); }))
        return std::nullopt;
    FailureCause out{text("no heartbeat for ", duration_text(timeout_), ": ")};
    for (std::size_t i = 0; i < ranks_.size(); ++i) {
        if (!silent_for(ranks_[i], timeout_ / 2)) continue;
        out.text += (out.ranks.empty() ? "" : ", ") + labels_[i];
        out.ranks.push_back(static_cast<int>(i));
        for (const ChannelStatus& channel : ranks_[i].status.channels) {
            if (channel.active) out.text += " in " + channel.call;
        }
    }
    return out;
}

DPTK_INLINE std::optional<FailureCause> RankMonitor::find_stuck_rank() const {
    const bool alone = static_cast<std::size_t>(count_left()) + 1 == ranks_.size();
    for (std::size_t gone = 0; gone < ranks_.size(); ++gone) {
        if (!ranks_[gone].left) continue;
        for (std::size_t waiting = 0; waiting < ranks_.size(); ++waiting) {
            if (ranks_[waiting].left) continue;
            for (const ChannelStatus& channel : ranks_[waiting].status.channels) {
                if (!channel.active || channel.duration < settled()) continue;
                if (channel.peer != CallTracker::no_peer) {
                    // The message may have arrived just before the sender left, so the waiting rank has until
                    // its second heartbeat to continue.
                    if (ranks_[waiting].beats_since_departure < 2) continue;
                    if (channel.peer == CallTracker::any_peer && alone) {
                        return FailureCause{text("all other ranks have left their process groups, and ",
                                                 labels_[waiting], " waits for them in ", channel.call)};
                    }
                    if (channel.peer == static_cast<int>(gone)) {
                        return FailureCause{text(labels_[gone], " has left its process group, and ",
                                                 labels_[waiting], " waits for it in ", channel.call)};
                    }
                    continue;
                }
                const ChannelStatus* last = ranks_[gone].status.channel(channel.name);
                if (last == nullptr || last->sequence >= channel.sequence) continue;
                return FailureCause{text(labels_[gone], " has left its process group after ", last->sequence,
                                         " calls, and ", labels_[waiting], " waits for it in ",
                                         channel.call)};
            }
        }
    }
    return std::nullopt;
}

DPTK_INLINE std::optional<FailureCause> RankMonitor::find_mismatch() const {
    struct GroupCalls {
        std::string_view name;
        std::uint64_t least;  // how many calls each of its ranks has begun at least
        std::size_t rank = 0;
        const ChannelStatus* call = nullptr;  // in which `rank`, the first that waits, is
    };
    std::vector<GroupCalls> channels;
    for (const Rank& rank : ranks_) {
        if (rank.left) continue;
        for (const ChannelStatus& here : rank.status.channels) {
            const auto known = detail::find(channels, here.name, &GroupCalls::name);
            if (known == channels.end()) {
                channels.push_back({here.name, here.sequence});
            } else {
                known->least = std::min(known->least, here.sequence);
            }
        }
    }
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
        if (ranks_[rank].left) continue;
        for (const ChannelStatus& here : ranks_[rank].status.channels) {
            if (here.hash == 0 || !here.active || here.duration < settled()) continue;
            GroupCalls& channel = *detail::find(channels, here.name, &GroupCalls::name);
            // Until all ranks have come to the call, its own check may still throw an agreed error.
            if (channel.least < here.sequence) continue;
            if (channel.call == nullptr) {
                channel.rank = rank;
                channel.call = &here;
            }
            if (here.hash == channel.call->hash) continue;
            const auto same_call = [&](const Rank& one, const Rank& other) {
                const ChannelStatus* const theirs = other.status.channel(here.name);
                return theirs != nullptr && theirs->hash == one.status.channel(here.name)->hash;
            };
            return FailureCause{text("calls differ between ranks: ", labels_[channel.rank], " calls ",
                                     channel.call->call, ", and ", labels_[rank], " calls ", here.call),
                                minority({channel.rank, rank}, same_call)};
        }
    }
    return std::nullopt;
}

DPTK_INLINE std::optional<FailureCause> RankMonitor::find_earlier_mismatch(Store& store) {
    constexpr int most_looks = 3;  // after which a rank counts as one that does not reply
    std::vector<const RankStatus*> statuses;
    for (const Rank& rank : ranks_) statuses.push_back(&rank.status);
    if (!difference_) difference_ = find_difference(statuses);
    if (!difference_) return std::nullopt;
    const auto calls =
        differing_calls(*difference_, calls_of(store, difference_->one), calls_of(store, difference_->other));
    const bool can_reply = !ranks_[difference_->one].left && !ranks_[difference_->other].left;
    if (!calls && can_reply && looks_for_calls_++ < most_looks) {
        const CallRequest request{difference_->one, difference_->other, difference_->same_until,
                                  difference_->differ_at, difference_->channel};
        if (looks_for_calls_ == 1) store.set(CallRequest::key, request.to_text());
        return std::nullopt;
    }
    const auto same_calls = [&](const Rank& one, const Rank& other) {
        const RankStatus* const both[] = {&one.status, &other.status};
        return other.status.channel(difference_->channel) != nullptr && !find_difference(both);
    };
    return FailureCause{describe(*difference_, calls, labels_),
                        minority({difference_->one, difference_->other}, same_calls)};
}

DPTK_INLINE std::vector<NumberedCall> RankMonitor::calls_of(Store& store, std::size_t rank) const {
    const std::optional<std::string> reply = store.find(CallRequest::reply_key(rank));
    if (reply) return parse_calls(*reply);
    const ChannelStatus* const channel = ranks_[rank].status.channel(difference_->channel);
    return channel == nullptr ? std::vector<NumberedCall>() : channel->calls;
}

DPTK_INLINE bool RankMonitor::waits_for(const Rank& waiting, const Rank& other) const {
    const ChannelStatus* const here = waiting.awaited();
    const ChannelStatus* const there = other.awaited();
    if (here == nullptr || there == nullptr || here->name == there->name) return false;
    if (here->peer != CallTracker::no_peer || waiting.beats_in_call < 1 || other.beats_in_call < 1)
        return false;
    const ChannelStatus* const theirs = other.status.channel(here->name);
    // The other rank has called both groups from its only thread. In a group that it has not called yet, a
    // second thread may be about to make the first call.
    const bool has_called = theirs != nullptr && theirs->sequence > 0;
    return has_called && !theirs->active && theirs->sequence < here->sequence;
}

DPTK_INLINE std::optional<FailureCause> RankMonitor::find_cycle() const {
    std::vector<std::size_t> waiting;
    for (std::size_t i = 0; i < ranks_.size(); ++i) {
        if (!ranks_[i].left && ranks_[i].beats_in_call > 0) waiting.push_back(i);
    }
    const std::vector<std::size_t> cycle = find_wait_cycle(
        std::move(waiting),
        [&](std::size_t rank, std::size_t other) { return waits_for(ranks_[rank], ranks_[other]); });
    if (cycle.empty()) return std::nullopt;
    const auto same_group = [](const Rank& one, const Rank& other) {
        const ChannelStatus* const theirs = other.awaited();
        return !other.left && theirs != nullptr && theirs->name == one.awaited()->name;
    };
    FailureCause out{"ranks wait for each other: ", minority(cycle, same_group)};
    for (std::size_t i = 0; i < cycle.size(); ++i) {
        const ChannelStatus& call = *ranks_[cycle[i]].awaited();
        out.text +=
            text(i == 0 ? "" : "; ", labels_[cycle[i]], " waits for ", labels_[cycle[(i + 1) % cycle.size()]],
                 " in ", call.call, " of group ", group_of(call.name));
    }
    return out;
}

class Heartbeat {
  public:
    Heartbeat(const std::shared_ptr<ControlPlane>& plane, std::shared_ptr<Store> store,
              std::chrono::milliseconds timeout)
        : plane_(plane),
          store_(std::move(store)),
          rank_(plane->rank()),
          period_(std::clamp<std::chrono::milliseconds>(timeout / 5, std::chrono::milliseconds(20),
                                                        std::chrono::milliseconds(1000))),
          server_(plane->label(0)) {
        if (rank_ != 0) return;
        std::vector<std::string> labels;
        for (int rank = 0; rank < plane->size(); ++rank) labels.push_back(plane->label(rank));
        monitor_.emplace(std::move(labels), timeout, RankMonitor::clock::now());
    }

    /// Runs until this rank has closed its group (on rank 0, until all ranks have closed their groups), or
    /// until the job has failed.
    void run() noexcept {
        try {
            const std::string ended = ControlPlane::ended_key(rank_);
            store_->set_last_will(ended, "lost");
            while (beat()) {
            }
            store_->set(ended, "all is known");
        } catch (const std::exception& error) {
            fail({rank_ == 0 ? error.what()
                             : text(server_, ", which serves the control plane, is gone: ", error.what())});
        }
    }

  private:
    /// Returns whether the heartbeat continues.
    bool beat() {
        if (const std::shared_ptr<ControlPlane> plane = plane_.lock(); plane && !plane->has_left()) {
            if (plane->job_state()->failed()) return false;
            const std::string status = to_text(plane->status(++beats_));
            store_->set(ControlPlane::status_key(rank_), status);
            // Asked through the plane's own client, which is idle otherwise: it must notice soon that its
            // connection was reset.
            const std::optional<std::string> asked = plane->store()->find(CallRequest::key);
            const auto request = asked ? CallRequest::parse(*asked) : std::nullopt;
            if (request) reply(*plane, *request);
        } else if (!monitor_ || monitor_->all_have_left()) {
            return false;
        }
        if (monitor_) {
            const std::optional<FailureCause> verdict = monitor_->look(*store_, RankMonitor::clock::now());
            if (verdict) store_->compare_and_set(ControlPlane::abort_key, "", to_text(*verdict));
        }
        try {
            fail(parse_cause(store_->get(ControlPlane::abort_key, period_)));
            return false;
        } catch (const TimeoutError&) {
            return true;
        }
    }

    void reply(ControlPlane& plane, const CallRequest& request) {
        const auto rank = static_cast<std::size_t>(rank_);
        const bool is_asked = rank == request.one || rank == request.other;
        if (!is_asked || std::exchange(has_replied_, true)) return;
        store_->set(CallRequest::reply_key(rank),
                    to_text(plane.calls(request.channel, request.after, request.until)));
    }

    void fail(FailureCause cause) {
        const std::shared_ptr<ControlPlane> plane = plane_.lock();
        if (plane && !plane->has_left()) plane->job_state()->fail(std::move(cause), Failure::remote);
    }

    std::weak_ptr<ControlPlane> plane_;
    std::shared_ptr<Store> store_;
    int rank_;
    std::chrono::milliseconds period_;
    std::string server_;
    std::uint64_t beats_ = 0;
    bool has_replied_ = false;
    std::optional<RankMonitor> monitor_;
};

DPTK_INLINE std::shared_ptr<ControlPlane> join_control_plane(ControlPlaneOptions options,
                                                             std::shared_ptr<JobState> job_state,
                                                             std::chrono::milliseconds heartbeat_timeout) {
    options.has_heartbeat = true;
    const std::shared_ptr<Store> store = options.store;
    auto plane = ControlPlane::make(std::move(options), std::move(job_state));
    store->set_last_will(ControlPlane::abort_key, plane->label(plane->rank()) +
                                                      " is gone: it ended without closing its process group");
    auto heartbeat = std::make_shared<Heartbeat>(plane, store->clone(), heartbeat_timeout);
    start_background_thread([heartbeat = std::move(heartbeat)] { heartbeat->run(); }).detach();
    return plane;
}

}  // namespace DPTK_NAMESPACE::detail
