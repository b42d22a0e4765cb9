#pragma once

#include "dptk/ddp/join.hpp"

#include "dptk/comm/agreement.hpp"
#include "dptk/core/detail/algorithms.hpp"

namespace DPTK_NAMESPACE {

DPTK_INLINE Join::Join(ProcessGroup& group, JoinOptions options) : group_(group), options_(options) {
    const detail::PurposeScope here(group_.engine(), {.call = "the constructor", .owner = "Join"});
    detail::check_equal_tables(
        group_, "JoinOptions",
        detail::text("divide_by_initial_world_size ", options.divide_by_initial_world_size,
                     "\nthrow_on_early_termination ", options.throw_on_early_termination));
}

DPTK_INLINE void Join::add(std::function<void()> shadow, std::function<void(int last)> finish) {
    members_.push_back({std::move(shadow), std::move(finish), {}});
}

DPTK_INLINE void Join::add(DistributedDataParallel& ddp) {
    members_.push_back({[&ddp] { shadow_step(ddp); }, [&ddp](int last) { ddp.broadcast_values(last); },
                        [&ddp](const detail::JoinRound& round) { set_round(ddp, round); }});
}

DPTK_INLINE void Join::shadow_step(DataParallelSteps& steps) {
    steps.reducer().shadow();
}

DPTK_INLINE void Join::set_round(DataParallelSteps& steps, const detail::JoinRound& round) {
    steps.reducer().set_joined(round);
}

DPTK_INLINE void Join::finish() {
    while (exchange_presence(false)) {
        for (const Member& member : members_) member.shadow();
    }
    for (const Member& member : members_) {
        if (member.set_round) member.set_round({});
        if (member.finish) member.finish(last_);
    }
    steps_ = 0;
}

DPTK_INLINE bool Join::exchange_presence(bool has_batch) {
    const detail::PurposeScope here(group_.engine(),
                                    {.call = has_batch ? "begin_step()" : "finish()", .owner = "Join"});
    const std::vector<std::uint8_t> present =
        group_.all_gather_value(static_cast<std::uint8_t>(has_batch ? 1 : 0));
    const auto count = static_cast<int>(detail::count(present, 1));
    if (count > 0 && count < group_.size() && options_.throw_on_early_termination) throw_early(present);
    if (count == 0) return false;
    last_ = static_cast<int>(detail::find(present, 1) - present.begin());
    const detail::JoinRound round{count, last_, !options_.divide_by_initial_world_size};
    for (const Member& member : members_) {
        if (member.set_round) member.set_round(round);
    }
    ++steps_;
    return true;
}

DPTK_INLINE void Join::throw_early(const std::vector<std::uint8_t>& present) {
    const auto first = detail::find(present, 0) - present.begin();
    detail::throw_agreed(group_, Error(detail::text("rank ", first, " has run out of batches after ", steps_,
                                                    " steps, but other ranks have not"),
                                       {.rank = static_cast<int>(first), .step = steps_}));
}

}  // namespace DPTK_NAMESPACE
