/// The state of each gradient in a step: waiting, ready or unused.
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
        unused,  ///< takes no part in the step on this rank
    };

    /// Begins a step: sets all gradients to waiting.
    void reset(std::size_t parameters, const BucketSet& buckets);

    [[nodiscard]] State operator[](std::size_t parameter) const noexcept { return states_[parameter]; }

    /// Marks a gradient. Returns false if it was already marked.
    bool mark(std::size_t parameter, State state, const BucketSet& buckets);

    /// Returns whether all gradients of a bucket are marked.
    [[nodiscard]] bool is_complete(std::size_t bucket) const noexcept { return missing_[bucket] == 0; }

    /// Returns the gradients that are ready, in the order in which they became ready.
    [[nodiscard]] const std::vector<std::size_t>& arrived() const noexcept { return arrived_; }

  private:
    std::vector<State> states_;
    std::vector<std::size_t> arrived_;
    std::vector<std::size_t> missing_;  // by bucket: gradients that are not marked yet
};

}  // namespace DPTK_NAMESPACE::detail

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/ddp/detail/gradient_marks.ipp"
#endif
