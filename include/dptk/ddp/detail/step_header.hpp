/// The header of a step: status words that the ranks of a training exchange once in each step, before the
/// buckets.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include "dptk/comm/process_group.hpp"
#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE::detail {

class StepHeader {
  public:
    /// The status of one rank.
    struct Own {
        /// The number of samples of this step, if the rank counts samples.
        std::optional<std::size_t> samples;
        /// The number of samples of the accumulated micro-batches.
        std::size_t accumulated = 0;
        /// Whether this rank has found a problem.
        bool has_problem = false;
        /// Whether this rank has run out of samples, and only takes part in the others' collectives.
        bool is_shadow = false;
        /// The hash of the parameters' values, if this rank takes part in their comparison in this step.
        std::optional<std::uint32_t> hash;
    };

    [[nodiscard]] bool has_started() const noexcept { return started_; }

    /// Starts to sum the headers over the ranks. Collective, does not block.
    void start(ProcessGroup& group, const Own& own);

    /// Sums the headers over the ranks, on this thread. Other ranks may call start() instead. Collective,
    /// blocks.
    void run(ProcessGroup& group, const Own& own);

    /// Blocks until the sums are available. Must be called before the functions below.
    void wait() { work_.wait(); }

    /// Returns the weight of this rank's gradients in the average over all samples, or 1 if samples are not
    /// counted.
    [[nodiscard]] double weight() const noexcept;

    /// Returns whether all ranks have the same number of samples, above 0, in this step, and no sums of
    /// micro-batches: the average over all samples is then the average over the ranks.
    [[nodiscard]] bool counts_are_equal() const noexcept;

    /// Returns the weight of one accumulated sample.
    [[nodiscard]] double sample_weight() const noexcept;

    [[nodiscard]] bool has_any_problem() const noexcept { return sums_->problems != 0; }

    [[nodiscard]] bool any_counts_samples() const noexcept { return sums_->counting != 0; }

    /// Returns whether only some ranks count samples, disregarding shadows.
    [[nodiscard]] bool only_some_count_samples() const noexcept;

    /// Returns whether ranks compare the parameters' values in this step.
    [[nodiscard]] bool compares_hashes() const noexcept { return sums_->hashing != 0; }

    /// Returns whether this rank's hash differs from the mean of all hashes. If hashes differ, this is so on
    /// some rank.
    [[nodiscard]] bool has_other_hash() const noexcept;

    void reset();

  private:
    /// Sums over the ranks.
    struct Sums {
        double samples = 0;
        double squares = 0;       // of the ranks' numbers of samples
        double counting = 0;      // ranks that count samples
        double accumulating = 0;  // ranks that have sums of micro-batches
        double present = 0;       // ranks that are not shadows
        double problems = 0;      // ranks that have a problem
        double hashing = 0;       // ranks that have a hash
        double hash = 0;          // exact for up to 2^21 ranks
    };

    void write(const ProcessGroup& group, const Own& own);

    [[nodiscard]] Collective call() const;

    Own own_;
    int ranks_ = 0;
    std::shared_ptr<Sums> sums_ = std::make_shared<Sums>();
    Work work_;
    bool started_ = false;
};

}  // namespace DPTK_NAMESPACE::detail

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/ddp/detail/step_header.ipp"
#endif
