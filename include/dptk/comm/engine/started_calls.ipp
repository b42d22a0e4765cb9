#pragma once

#include "dptk/comm/engine/started_calls.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

#include "dptk/core/detail/algorithms.hpp"

namespace DPTK_NAMESPACE::detail {

DPTK_INLINE DeferredWork::DeferredWork(std::function<void()> operation, std::function<void()> check,
                                       std::shared_ptr<DeferredWork> before)
    : operation_(std::move(operation)), check_(std::move(check)), before_(std::move(before)) {}

DPTK_INLINE DeferredWork::~DeferredWork() {
    for (auto before = std::move(before_); before && before.use_count() == 1;)
        before = std::exchange(before->before_, nullptr);
}

DPTK_INLINE bool DeferredWork::wait(std::chrono::nanoseconds timeout) {
    if (timeout != std::chrono::nanoseconds::max()) {
        if (is_executed()) return true;
        try {
            check_();
            return false;
        } catch (...) {
            operation_ = nullptr;
            error_.set(std::current_exception());
            return true;
        }
    }
    std::vector<std::shared_ptr<DeferredWork>> earlier;
    for (auto before = before_; before && !before->is_executed(); before = before->before_)
        earlier.push_back(before);
    detail::reverse(earlier);
    for (const auto& work : earlier) work->execute();
    execute();
    return true;
}

DPTK_INLINE void DeferredWork::execute() {
    before_ = nullptr;
    const auto operation = std::exchange(operation_, nullptr);
    if (!operation) return;
    try {
        operation();
    } catch (...) {
        error_.set(std::current_exception());
    }
}

DPTK_INLINE void StartedCalls::add(const Collective& call, std::shared_ptr<WorkState> work,
                                   std::shared_ptr<const void> keep_alive) {
    started_.add({call, std::move(work), std::move(keep_alive)});
}

DPTK_INLINE void StartedCalls::add(std::shared_ptr<WorkState> work, std::shared_ptr<const void> keep_alive) {
    messages_.add({{}, std::move(work), std::move(keep_alive)});
}

DPTK_INLINE std::shared_ptr<WorkState> StartedCalls::defer(const Collective& call,
                                                           std::function<void()> operation,
                                                           std::function<void()> check,
                                                           std::shared_ptr<const void> keep_alive) {
    if (last_deferred_ != nullptr && !has_deferred()) {
        finish_deferred();
        started_.drop_ended();
    }
    std::vector<std::shared_ptr<WorkState>> before;
    for (const Started& started : started_.all) {
        if (share_memory(started.call, call)) before.push_back(started.work);
    }
    auto in_turn = [before = std::move(before), operation = std::move(operation)] {
        for (const auto& work : before) work->wait(std::chrono::nanoseconds::max());
        operation();
    };
    auto work = std::make_shared<DeferredWork>(std::move(in_turn), std::move(check), last_deferred_);
    last_deferred_ = work;
    deferred_.push_back({call, work, std::move(keep_alive)});
    return work;
}

DPTK_INLINE bool StartedCalls::has_deferred() const {
    return last_deferred_ != nullptr && !last_deferred_->is_executed();
}

DPTK_INLINE void StartedCalls::finish_some_before(const Collective& call) {
    finish_deferred();
    for (const Started& started : started_.all) {
        if (call.verb == Verb::barrier || share_memory(started.call, call)) started.finish();
    }
    if (call.verb != Verb::barrier) return;
    std::vector<Started> dropped;
    take_dropped(started_.all, dropped);
    take_dropped(messages_.all, dropped);
    started_.drop_ended();
    messages_.drop_ended();
    for (const Started& each : dropped) each.finish();
    rethrow_unseen(dropped);
}

DPTK_INLINE void StartedCalls::finish_all() {
    finish_deferred();
    std::vector<Started> ended = std::exchange(started_.all, {});
    for (Started& message : std::exchange(messages_.all, {})) ended.push_back(std::move(message));
    for (const Started& each : ended) each.finish();
    rethrow_unseen(ended);
}

DPTK_INLINE void StartedCalls::await_end() {
    for (const std::vector<Started>* calls : {&started_.all, &deferred_, &messages_.all}) {
        for (const Started& call : *calls) call.finish();
    }
}

DPTK_INLINE void StartedCalls::abandon() {
    for (std::vector<Started>* const calls : {&started_.all, &messages_.all})
        if (!calls->empty()) static_cast<void>(new std::vector<Started>(std::move(*calls)));  // for ever
    // Those that have not been executed use no memory. They may keep their engine alive, which owns this
    // object.
    deferred_.clear();
    last_deferred_ = nullptr;
}

DPTK_INLINE void StartedCalls::Started::finish() const {
    static_cast<void>(work->wait(std::chrono::nanoseconds::max()));
}

DPTK_INLINE void StartedCalls::Calls::add(Started started) {
    if (all.size() >= next_drop) drop_ended();
    all.push_back(std::move(started));
}

DPTK_INLINE void StartedCalls::Calls::drop_ended() {
    detail::erase_if(
        all, [](const Started& call) { return call.work->ended() && !call.work->unreported_error(); });
    next_drop = std::max<std::size_t>(2 * all.size(), 16);
}

DPTK_INLINE void StartedCalls::rethrow_unseen(const std::vector<Started>& ended) {
    for (const Started& call : ended) {
        if (const std::exception_ptr error = call.work->unreported_error()) std::rethrow_exception(error);
    }
}

DPTK_INLINE void StartedCalls::finish_deferred() {
    for (Started& call : std::exchange(deferred_, {})) {
        call.finish();
        started_.all.push_back(std::move(call));
    }
    last_deferred_ = nullptr;
}

DPTK_INLINE void StartedCalls::take_dropped(std::vector<Started>& from, std::vector<Started>& dropped) {
    std::vector<Started> kept;
    for (Started& call : from) (call.work.use_count() > 1 ? kept : dropped).push_back(std::move(call));
    from = std::move(kept);
}

}  // namespace DPTK_NAMESPACE::detail
