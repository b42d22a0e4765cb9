#pragma once

#include "dptk/comm/engine/call_checker.hpp"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "dptk/control/health/job_state.hpp"
#include "dptk/control/health/wait_cycle.hpp"
#include "dptk/core/detail/algorithms.hpp"
#include "dptk/core/detail/error_access.hpp"
#include "dptk/core/detail/fnv1a.hpp"
#include "dptk/core/detail/parse.hpp"
#include "dptk/core/detail/text.hpp"

namespace DPTK_NAMESPACE::detail {

DPTK_INLINE CallerState::WaitScope::WaitScope(CallerState& caller, const std::string& channel)
    : caller_(caller) {
    caller_.begin(channel);
}

DPTK_INLINE CallerState::WaitScope::~WaitScope() {
    caller_.begin({});
}

DPTK_INLINE bool CallerState::waits_on(std::string_view channel) const {
    const std::lock_guard lock(mutex_);
    return !several_threads_ && channel_ == channel;
}

DPTK_INLINE void CallerState::announce(const std::string& channel) {
    const std::lock_guard lock(mutex_);
    ++announced_[channel];
}

DPTK_INLINE void CallerState::forget(const std::string& channel) {
    const std::lock_guard lock(mutex_);
    announced_.erase(channel);
}

DPTK_INLINE CallCounts CallerState::announced() const {
    const std::lock_guard lock(mutex_);
    return announced_;
}

DPTK_INLINE void CallerState::begin(const std::string& channel) {
    const std::lock_guard lock(mutex_);
    if (!thread_) thread_ = std::this_thread::get_id();
    several_threads_ = several_threads_ || thread_ != std::this_thread::get_id();
    channel_ = channel;
}

DPTK_INLINE std::string WaitRecord::to_value() const {
    std::string out = text(channel, ' ', number);
    for (const int rank : ranks) out += text(' ', rank);
    out += " +";
    for (const auto& [name, calls] : announced) out += text(' ', name, ' ', calls);
    return out + " ; " + call;
}

DPTK_INLINE std::optional<WaitRecord> WaitRecord::from_value(std::string_view value) {
    WaitRecord place;
    place.channel = next_word(value);
    if (!parse_number(next_word(value), place.number)) return std::nullopt;
    for (std::string_view word = next_word(value); word != "+"; word = next_word(value)) {
        int rank = 0;
        if (!parse_number(word, rank)) return std::nullopt;
        place.ranks.push_back(rank);
    }
    for (std::string_view word = next_word(value); word != ";"; word = next_word(value)) {
        if (!parse_number(next_word(value), place.announced[std::string(word)])) return std::nullopt;
    }
    place.call = value;
    return place;
}

DPTK_INLINE bool WaitRecord::is_same_call(const WaitRecord& other) const {
    return channel == other.channel && number == other.number;
}

DPTK_INLINE bool WaitRecord::has_announced(const WaitRecord& other) const {
    const auto calls = announced.find(other.channel);
    return calls != announced.end() && calls->second >= other.number;
}

/// Returns a cycle of ranks that wait for each other, or an empty list.
[[nodiscard]] DPTK_INLINE std::vector<std::size_t> find_cycle_in(const WaitRecords& waiting) {
    std::vector<std::size_t> ranks;
    for (std::size_t rank = 0; rank < waiting.size(); ++rank) {
        if (waiting[rank]) ranks.push_back(rank);
    }
    return find_wait_cycle(std::move(ranks), [&](std::size_t rank, std::size_t other) {
        const WaitRecord& here = *waiting[rank];
        const WaitRecord& there = *waiting[other];
        return detail::contains(here.ranks, static_cast<int>(other)) && !there.is_same_call(here) &&
               !there.has_announced(here);
    });
}

DPTK_INLINE CallChecker::CallChecker(std::shared_ptr<ControlPlane> control,
                                     std::shared_ptr<CallTracker> tracker,
                                     std::shared_ptr<CallerState> caller, Progress progress)
    : control_(std::move(control)),
      tracker_(std::move(tracker)),
      caller_(std::move(caller)),
      progress_(std::move(progress)),
      store_(control_->store()->clone()) {}

DPTK_INLINE void CallChecker::check(const Collective& call) {
    with_first_cause(*control_->job_state(), [&] { agree_on(call); });
}

DPTK_INLINE void CallChecker::announce() {
    caller_->announce(channel());
}

DPTK_INLINE void CallChecker::leave() {
    caller_->forget(channel());
    store_->set(arrival_key(channel(), control_->rank()), text(calls_, " left"));
}

DPTK_INLINE void CallChecker::agree_on(const Collective& call) {
    const WaitRecord here{channel(), ++calls_, ranks(), fingerprint(call)};
    store_->set(arrival_key(here.channel, control_->rank()), text(here.number));
    const std::string first = store_->compare_and_set(key(here, "first"), "", own_call(here));
    if (first != own_call(here) && call_in(first) != here.call)
        store_->set(key(here, text("differs/", control_->rank())), here.call);
    const bool last = store_->add(key(here, "arrived"), 1) == static_cast<std::int64_t>(ranks().size());
    if (last) post_verdict(here, compare(here, first));
    const std::string verdict = last ? store_->get(key(here, "verdict"), poll_interval) : await(here, first);
    if (verdict != agreed_verdict) {
        MismatchError error(verdict);
        detail::ErrorAccess::mark_agreed(error);
        throw error;
    }
    forget(here.number - 1);
}

DPTK_INLINE std::string CallChecker::key(const WaitRecord& place, std::string_view what) {
    return text("check/", place.channel, '/', place.number, '/', what);
}

DPTK_INLINE std::string CallChecker::waiting_key(int rank) {
    return text("check/waiting/", rank);
}

DPTK_INLINE std::string CallChecker::arrival_key(std::string_view channel, int rank) {
    return text("check/", channel, "/arrival/", rank);
}

DPTK_INLINE std::string CallChecker::own_call(const WaitRecord& here) const {
    return text(control_->rank(), ' ', here.call);
}

DPTK_INLINE std::string_view CallChecker::call_in(std::string_view first) {
    static_cast<void>(next_word(first));
    return first;
}

DPTK_INLINE int CallChecker::rank_in(std::string_view first) {
    int rank = 0;
    static_cast<void>(parse_number(next_word(first), rank));
    return rank;
}

DPTK_INLINE std::string CallChecker::fingerprint(const Collective& call) {
    std::string out = describe(call);
    if (call.shared_shape().dtype == DType::opaque && has_buffers(call.verb))
        out += text(" of ", call.shared_shape().opaque_size, " bytes each");
    if (call.verb == Verb::all_gather_uneven) {
        out += " in parts of";
        const std::size_t shown = std::min<std::size_t>(call.counts.size(), 16);
        for (const std::size_t count : call.counts.first(shown)) out += text(' ', count);
        const auto* bytes = reinterpret_cast<const char*>(call.counts.data());
        if (shown < call.counts.size()) out += text(" ... (", fnv1a({bytes, call.counts.size_bytes()}), ')');
    }
    if (call.verb == Verb::all_reduce && call.algorithm != AllReduceAlgorithm::automatic)
        out += text(" by ", algorithm_name(call.algorithm));
    return out;
}

DPTK_INLINE void CallChecker::post_verdict(const WaitRecord& place, std::string_view verdict) {
    store_->compare_and_set(key(place, "verdict"), "", verdict);
}

DPTK_INLINE std::string CallChecker::compare(const WaitRecord& here, std::string_view first) {
    std::string others;
    for (const int rank : ranks()) {
        const std::optional<std::string> call = store_->find(key(here, text("differs/", rank)));
        if (call) others += text(others.empty() ? "" : "; ", control_->label(rank), " calls ", *call);
    }
    if (others.empty()) return std::string(agreed_verdict);
    return text("call #", here.number, " of group ", here.channel, " differs between ranks: ", others, "; ",
                control_->label(rank_in(first)), " calls ", call_in(first));
}

DPTK_INLINE std::string CallChecker::await(const WaitRecord& here, std::string_view first) {
    Deadline next_check(grace_period);
    bool published = false;
    std::optional<int> left_before;
    std::optional<std::string> verdict;
    while (!verdict) {
        control_->job_state()->check();
        try {
            verdict = store_->get(key(here, "verdict"), make_progress(progress_));
        } catch (const TimeoutError&) {
            if (!next_check.passed()) continue;
            next_check = Deadline(poll_interval);
            const std::string differences = compare(here, first);
            if (differences != agreed_verdict) {
                post_verdict(here, differences);
                continue;
            }
            // After a deadlock verdict, another rank may close the channel before this rank has read the
            // verdict.
            const std::optional<int> left = find_departed_rank(here);
            if (left && left == left_before) throw peer_lost_error(here, *left);
            left_before = left;
            published = publish_wait(here) || published;
            detect_deadlock();
        }
    }
    if (published) store_->erase(waiting_key(control_->rank()));
    return *verdict;
}

DPTK_INLINE bool CallChecker::publish_wait(const WaitRecord& here) {
    if (!caller_->waits_on(here.channel)) return false;
    WaitRecord place = here;
    detail::erase_if(place.ranks, [&](int rank) { return has_arrived(rank, here); });
    place.announced = caller_->announced();
    store_->set(waiting_key(control_->rank()), place.to_value());
    return true;
}

DPTK_INLINE CallChecker::Arrival CallChecker::arrival(std::string_view channel, int rank) {
    const std::string value = store_->find(arrival_key(channel, rank)).value_or("");
    std::string_view words = value;
    Arrival found;
    static_cast<void>(parse_number(next_word(words), found.number));
    found.left = words == "left";
    return found;
}

DPTK_INLINE bool CallChecker::has_arrived(int rank, const WaitRecord& place) {
    return arrival(place.channel, rank).number >= place.number;
}

DPTK_INLINE std::optional<int> CallChecker::find_departed_rank(const WaitRecord& here) {
    for (const int rank : ranks()) {
        const Arrival last = arrival(here.channel, rank);
        if (last.left && last.number < here.number) return rank;
    }
    return std::nullopt;
}

DPTK_INLINE PeerLostError CallChecker::peer_lost_error(const WaitRecord& here, int rank) {
    return PeerLostError(text(control_->label(rank), " has left its process group after ",
                              arrival(here.channel, rank).number, " calls, and ",
                              control_->label(control_->rank()), " waits for it in ",
                              tracker_->describe(tracker_->look())));
}

DPTK_INLINE WaitRecords CallChecker::read_waiting() {
    WaitRecords waiting;
    for (int rank = 0; rank < control_->size(); ++rank) {
        const std::optional<std::string> value = store_->find(waiting_key(rank));
        waiting.push_back(value ? WaitRecord::from_value(*value) : std::nullopt);
    }
    return waiting;
}

DPTK_INLINE void CallChecker::detect_deadlock() {
    const WaitRecords before = read_waiting();
    const std::vector<std::size_t> cycle = find_cycle_in(before);
    if (cycle.empty()) return;
    const WaitRecords now = read_waiting();
    std::string waits;
    for (const std::size_t rank : cycle) {
        const std::optional<WaitRecord>& place = now[rank];
        if (!place || place != before[rank] || store_->find(key(*place, "verdict"))) return;
        waits +=
            text(waits.empty() ? "" : "; ", control_->label(static_cast<int>(rank)), " calls ", place->call,
                 " of group ", place->channel, " and waits for ranks ", list_text(place->ranks));
    }
    const std::string verdict = "ranks wait for each other in different groups: " + waits;
    for (const std::size_t rank : cycle) post_verdict(*now[rank], verdict);
}

DPTK_INLINE void CallChecker::forget(std::uint64_t number) {
    if (number == 0 || control_->rank() != ranks().front()) return;
    const WaitRecord place{channel(), number, {}, {}};
    for (const std::string_view what : {"first", "arrived", "verdict"}) store_->erase(key(place, what));
}

DPTK_INLINE CheckedWork::CheckedWork(std::shared_ptr<WorkState> work, std::shared_ptr<CallChecker> checker)
    : work_(std::move(work)), checker_(std::move(checker)) {}

DPTK_INLINE bool CheckedWork::wait(std::chrono::nanoseconds timeout) {
    if (timeout != std::chrono::nanoseconds::max()) return work_->wait(timeout);
    const CallerState::WaitScope here(checker_->caller(), checker_->channel());
    return work_->wait(timeout);
}

}  // namespace DPTK_NAMESPACE::detail
