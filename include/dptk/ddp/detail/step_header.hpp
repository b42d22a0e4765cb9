/// What the ranks of a training tell each other once in each step, before the buckets.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>

#include "dptk/comm/process_group.hpp"
#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE::detail {

class StepHeader {
  public:
    /// What one rank says.
    struct Own {
        /// Samples whose gradients it computes in this step, where it counts them.
        std::optional<std::size_t> samples;
        /// Samples of the micro-batches before.
        std::size_t accumulated = 0;
        /// Something is wrong here.
        bool has_problem = false;
        /// It has no samples any more, and does what the others do.
        bool is_shadow = false;
    };

    [[nodiscard]] bool has_started() const noexcept { return started_; }

    /// Starts to sum over the ranks. Collective, does not block.
    void start(ProcessGroup& group, const Own& own);

    /// The same on this thread, whichever of the two the other ranks have called. Collective, blocks.
    void run(ProcessGroup& group, const Own& own);

    /// Blocks until the sums are there; then the rest below may be called.
    void wait() { work_.wait(); }

    /// What this rank's gradients weigh in the average over all samples; over ranks, where none are counted.
    [[nodiscard]] double weight() const noexcept;

    /// What one accumulated sample weighs.
    [[nodiscard]] double sample_weight() const noexcept;

    [[nodiscard]] bool is_any_in_trouble() const noexcept { return sums_->problems != 0; }

    [[nodiscard]] bool does_any_count() const noexcept { return sums_->counting != 0; }

    /// Whether some ranks, and not all, count samples; shadows do as the others do.
    [[nodiscard]] bool do_some_count() const noexcept;

    void reset();

  private:
    /// Over ranks.
    struct Sums {
        double samples = 0;
        double counting = 0;  // ranks that count samples
        double present = 0;   // ranks that are no shadows
        double problems = 0;  // ranks that have one
    };

    void write(const Own& own);

    [[nodiscard]] Collective call() const;

    Own own_;
    std::shared_ptr<Sums> sums_ = std::make_shared<Sums>();
    Work work_;
    bool started_ = false;
};

}  // namespace DPTK_NAMESPACE::detail

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/ddp/detail/step_header.ipp"
#endif
