#pragma once

#include "dptk/ddp/elastic_state.hpp"

#include "dptk/comm/agreement.hpp"
#include "dptk/comm/detail/elastic_group.hpp"
#include "dptk/core/detail/algorithms.hpp"
#include "dptk/ddp/detail/gradient_reducer.hpp"

namespace DPTK_NAMESPACE {

DPTK_INLINE ElasticState::ElasticState(ProcessGroup& group, DistributedDataParallel& ddp, Only)
    : group_(group), ddp_(ddp) {
    keep_buffers();
}

DPTK_INLINE void ElasticState::keep_buffers() {
    if (group_.is_elastic()) buffers_ = ddp_.reducer().copy_buffers();
}

DPTK_INLINE ElasticState::~ElasticState() = default;

DPTK_INLINE void ElasticState::commit() {
    ++steps_;
    if (!group_.is_elastic()) return;
    keep_buffers();
    for (const auto& part : parts_) part->commit();
}

DPTK_INLINE void ElasticState::restore() {
    detail::ElasticGroup::reform(group_, steps_, [&] { exchange(); });
}

DPTK_INLINE void ElasticState::exchange() {
    const std::vector<std::int64_t> steps = group_.all_gather_value(steps_);
    const auto root = static_cast<int>(detail::max_element(steps) - steps.begin());
    const std::int64_t most = steps[static_cast<std::size_t>(root)];
    if (most < 0)
        detail::throw_agreed(group_, Error("ElasticState: all ranks that had the state of the training have "
                                           "ended while they sent it to the others"));
    if (steps_ < most) steps_ = -1;  // until the state has been received
    ddp_.reducer().restore_buffers(buffers_);
    ddp_.continue_over(group_, root);
    for (const auto& part : parts_) part->exchange(group_, root);
    steps_ = most;
    keep_buffers();
}

}  // namespace DPTK_NAMESPACE
