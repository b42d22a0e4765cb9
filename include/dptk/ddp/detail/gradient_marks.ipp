#pragma once

#include "dptk/ddp/detail/gradient_marks.hpp"

namespace DPTK_NAMESPACE::detail {

DPTK_INLINE void GradientMarks::reset(std::size_t parameters, const BucketSet& buckets) {
    states_.assign(parameters, State::waiting);
    arrived_.clear();
    missing_.resize(buckets.size());
    for (std::size_t b = 0; b < buckets.size(); ++b) missing_[b] = buckets[b].indices().size();
}

DPTK_INLINE bool GradientMarks::mark(std::size_t parameter, State state, const BucketSet& buckets) {
    if (states_[parameter] != State::waiting) return false;
    states_[parameter] = state;
    if (state == State::ready) arrived_.push_back(parameter);
    --missing_[buckets.place(parameter).bucket];
    return true;
}

}  // namespace DPTK_NAMESPACE::detail
