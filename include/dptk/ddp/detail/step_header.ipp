#pragma once

#include "dptk/ddp/detail/step_header.hpp"

namespace DPTK_NAMESPACE::detail {

DPTK_INLINE void StepHeader::start(ProcessGroup& group, const Own& own) {
    write(group, own);
    work_ = group.engine().start(call(), sums_);
    work_.detach();  // the operation keeps the sums alive
    started_ = true;
}

DPTK_INLINE void StepHeader::run(ProcessGroup& group, const Own& own) {
    // Other ranks may make this call nonblocking. MPI does not match a blocking call with a nonblocking one:
    // if it makes progress only within calls, this rank makes the nonblocking call, too.
    if (group.engine().progresses_by_caller()) return start(group, own);
    write(group, own);
    group.engine().run(call());
    started_ = true;
}

DPTK_INLINE double StepHeader::weight() const noexcept {
    if (!own_.samples) return 1;
    return sums_->samples == 0 ? 0 : static_cast<double>(*own_.samples) / sums_->samples;
}

DPTK_INLINE bool StepHeader::counts_are_equal() const noexcept {
    // By the Cauchy-Schwarz inequality, the products are equal if and only if all numbers are.
    const double square = sums_->samples * sums_->samples;
    constexpr double exact = 0x1p53;
    return sums_->samples > 0 && sums_->counting == ranks_ && sums_->accumulating == 0 && square < exact &&
           sums_->squares * ranks_ == square;
}

DPTK_INLINE double StepHeader::sample_weight() const noexcept {
    return sums_->samples == 0 ? 0 : 1 / sums_->samples;
}

DPTK_INLINE bool StepHeader::only_some_count_samples() const noexcept {
    return sums_->counting != 0 && sums_->counting != sums_->present;
}

DPTK_INLINE bool StepHeader::has_other_hash() const noexcept {
    return own_.hash && sums_->hash != static_cast<double>(*own_.hash) * sums_->hashing;
}

DPTK_INLINE void StepHeader::reset() {
    started_ = false;
    work_ = Work();
    own_ = {};
}

DPTK_INLINE void StepHeader::write(const ProcessGroup& group, const Own& own) {
    own_ = own;
    ranks_ = group.size();
    const auto one_if = [](bool flag) { return flag ? 1.0 : 0.0; };
    const auto samples = static_cast<double>(own.samples.value_or(0) + own.accumulated);
    *sums_ = {samples,
              samples * samples,
              one_if(own.samples.has_value() && !own.is_shadow),
              one_if(own.accumulated > 0),
              one_if(!own.is_shadow),
              one_if(own.has_problem),
              one_if(own.hash.has_value()),
              static_cast<double>(own.hash.value_or(0))};
}

DPTK_INLINE Collective StepHeader::call() const {
    const Buffer buffer{sums_.get(), sizeof(Sums) / sizeof(double), DType::f64, {}};
    return {.verb = Verb::all_reduce, .input = buffer, .output = buffer};
}

}  // namespace DPTK_NAMESPACE::detail
