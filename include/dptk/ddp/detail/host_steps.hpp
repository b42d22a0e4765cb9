/// Blocking steps: the host copies gradients into buckets, sends the buckets, waits until they are
/// received, and copies the averages back. Gradients may also be in device memory; they are then copied on
/// the device's default stream.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "dptk/comm/process_group.hpp"
#include "dptk/core/config.hpp"
#include "dptk/ddp/detail/bucket_traffic.hpp"
#include "dptk/ddp/detail/gradient_accumulator.hpp"
#include "dptk/ddp/detail/gradient_steps.hpp"
#include "dptk/ddp/detail/step_header.hpp"

namespace DPTK_NAMESPACE::detail {

class HostSteps final : public GradientSteps {
  public:
    /// `is_own` says that the group is used by this training only, so that calls may run in the background.
    /// `may_send_early` says that buckets may be launched before all gradients are ready.
    HostSteps(ProcessGroup& group, const ModelParameters& parameters, BucketSet& buckets,
              const DistributedDataParallelOptions& options, BucketSet::Outcome outcome, bool is_own,
              bool may_send_early);

    DPTK_INLINE void set_hook(std::shared_ptr<CommHook> hook) override;

    DPTK_INLINE void accumulate(std::size_t samples) override;

    DPTK_INLINE void begin(const LocalStep& own) override;
    [[nodiscard]] bool has_begun() const noexcept override { return header_.has_started(); }

    /// After this call, the weight of this rank's gradients is known.
    [[nodiscard]] DPTK_INLINE bool may_proceed(LocalStep& own) override;

    DPTK_INLINE void send(const ModelBuffers& buffers, int root, const LocalStep&) override;

    [[nodiscard]] DPTK_INLINE bool finish(LocalStep& own, const UnusedParameters& unused,
                                          StepClock& clock) override;

    DPTK_INLINE void reset() override;

    DPTK_INLINE void discard_sums() override;

    [[nodiscard]] DPTK_INLINE ReduceOp reduction(const LocalStep& own) const noexcept override;

  private:
    DPTK_INLINE void launch_bucket(std::size_t b, const LocalStep& own,
                                   const std::vector<bool>& takes_part) override;

    /// Copies a bucket's gradients in, multiplied by their weights.
    void copy_in(std::size_t b, const LocalStep& own, const std::vector<bool>& takes_part);

    /// Returns whether gradients of samples are the averages already, because there is no other rank.
    [[nodiscard]] bool are_averages(const LocalStep& own) const;

    /// Copies a bucket's averages out.
    void copy_out(std::size_t b, const LocalStep& own, const UnusedParameters& unused);

    /// Keeps the elements of gradient `i`, which lies in its bucket, until restore().
    void keep(std::size_t i, const Buffer& gradient);

    /// Writes the kept elements of gradient `i` back, if there are any.
    void restore(std::size_t i, const Buffer& gradient);

    /// Returns whether gradients are averaged over the ranks without weights, although ranks count samples:
    /// their counts are equal. A hook always gets weighted gradients, because it sums them.
    [[nodiscard]] bool needs_no_weights(const LocalStep& own) const noexcept;

    /// Returns whether the header, which no rank has refused, is sent when all problems of a step are known.
    /// The result is equal on all ranks.
    [[nodiscard]] bool header_had_all_problems() const;

    [[nodiscard]] StepHeader::Own header(const LocalStep& own) const;

    /// Returns the factor for the sums of accumulated micro-batches as they are copied in.
    [[nodiscard]] double sum_weight() const;

    /// Returns the weight of this rank's gradients in the average, including those that were accumulated.
    [[nodiscard]] double rank_weight(const LocalStep& own) const;

    /// Returns the factor by which copy_in() multiplies this step's own gradients: 1 if the reduction
    /// averages, otherwise the weight that makes the sum the average.
    [[nodiscard]] double copy_weight(const LocalStep& own) const;

    BucketSet::Outcome outcome_;
    bool may_send_early_;
    bool reduces_in_f32_;
    bool has_buffers_ = false;  // which are sent after the header, when a step begins
    StepHeader header_;
    GradientAccumulator sums_;
    BucketTraffic traffic_;
    std::vector<std::vector<std::byte>> kept_;  // by parameter
    std::vector<bool> is_average_;              // by parameter: its gradient is not copied
};

}  // namespace DPTK_NAMESPACE::detail

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/ddp/detail/host_steps.ipp"
#endif
