#pragma once

#include "dptk/ddp/detail/gradient_marks.hpp"

namespace DPTK_NAMESPACE::detail {

DPTK_INLINE void GradientMarks::reset(std::size_t parameters, const BucketSet& buckets,
                                      const TiedParameters& tied) {
    tied_ = &tied;
    marks_.assign(parameters, State::waiting);
    arrived_.clear();
    missing_.resize(buckets.size());
    for (std::size_t b = 0; b < buckets.size(); ++b) missing_[b] = buckets[b].indices().size();
}

DPTK_INLINE bool GradientMarks::mark(std::size_t parameter, State state, const BucketSet& buckets) {
    if (marks_[parameter] != State::waiting) return false;
    marks_[parameter] = state;
    const std::size_t first = tied_->first(parameter);
    const State complete = gradient(first);
    if (complete == State::waiting) return true;
    if (complete == State::ready) arrived_.push_back(first);
    --missing_[buckets.place(first).bucket];
    return true;
}

DPTK_INLINE GradientMarks::State GradientMarks::gradient(std::size_t first) const noexcept {
    State state = State::unused;
    for (std::size_t i = first; i < marks_.size(); i = tied_->next(i)) {
        if (marks_[i] == State::waiting) return State::waiting;
        if (marks_[i] == State::ready) state = State::ready;
    }
    return state;
}

}  // namespace DPTK_NAMESPACE::detail
