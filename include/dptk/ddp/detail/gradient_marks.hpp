/// The state of each gradient in a step: waiting, ready or unused. The gradient of tied parameters is
/// complete when each of them is marked.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "dptk/core/config.hpp"
#include "dptk/ddp/detail/bucket_set.hpp"
#include "dptk/ddp/detail/tied_parameters.hpp"

namespace DPTK_NAMESPACE::detail {

class GradientMarks {
  public:
    enum class State : std::uint8_t {
        waiting,
        ready,
        unused,  ///< takes no part in the step on this rank
    };

    /// Begins a step: sets all gradients to waiting. `tied` must outlive the step.
    void reset(std::size_t parameters, const BucketSet& buckets, const TiedParameters& tied);

    /// Returns the state of the mark of one parameter.
    [[nodiscard]] State operator[](std::size_t parameter) const noexcept { return marks_[parameter]; }

    /// Returns the state of a gradient, given the first of its parameters: waiting until all of them are
    /// marked, then unused if all are, otherwise ready.
    [[nodiscard]] State gradient(std::size_t first) const noexcept;

    /// Marks a parameter. Returns false if it was already marked.
    bool mark(std::size_t parameter, State state, const BucketSet& buckets);

    /// Returns whether all gradients of a bucket are marked.
    [[nodiscard]] bool is_complete(std::size_t bucket) const noexcept { return missing_[bucket] == 0; }

    /// Returns the gradients that are ready, in the order in which they became ready.
    [[nodiscard]] const std::vector<std::size_t>& arrived() const noexcept { return arrived_; }

  private:
    const TiedParameters* tied_ = nullptr;
    std::vector<State> marks_;
    std::vector<std::size_t> arrived_;
    std::vector<std::size_t> missing_;  // by bucket: gradients that are not marked yet
};

}  // namespace DPTK_NAMESPACE::detail

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/ddp/detail/gradient_marks.ipp"
#endif
