/// What is known of each gradient in a step.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "dptk/core/config.hpp"
#include "dptk/ddp/detail/bucket_set.hpp"

namespace DPTK_NAMESPACE::detail {

class GradientMarks {
  public:
    enum class State : std::uint8_t {
        waiting,
        ready,
        unused,  ///< takes no part on this rank
    };

    /// A new step: all wait.
    void reset(std::size_t parameters, const BucketSet& buckets);

    [[nodiscard]] State operator[](std::size_t parameter) const noexcept { return states_[parameter]; }

    /// Returns whether it was not marked before.
    bool mark(std::size_t parameter, State state, const BucketSet& buckets);

    /// Whether all gradients of a bucket are marked.
    [[nodiscard]] bool is_complete(std::size_t bucket) const noexcept { return missing_[bucket] == 0; }

    /// Those that are ready, in the order in which they became so.
    [[nodiscard]] const std::vector<std::size_t>& arrived() const noexcept { return arrived_; }

  private:
    std::vector<State> states_;
    std::vector<std::size_t> arrived_;
    std::vector<std::size_t> missing_;  // not yet marked, by bucket
};

}  // namespace DPTK_NAMESPACE::detail

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/ddp/detail/gradient_marks.ipp"
#endif
