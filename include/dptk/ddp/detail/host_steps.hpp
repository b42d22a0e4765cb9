/// Steps in which the host fills buckets, sends them and empties them, and waits for them at the end. They
/// may also be in device memory, which is then copied in the device's default stream.
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
    /// `is_own`: nobody else uses the group, so that calls may go on in the background. `may_leave_early`:
    /// buckets may be launched before all gradients are ready.
    HostSteps(ProcessGroup& group, const ModelParameters& parameters, BucketSet& buckets,
              BucketSet::Outcome outcome, bool is_own, bool may_leave_early);

    DPTK_INLINE void set_hook(std::shared_ptr<CommHook> hook) override;

    DPTK_INLINE void accumulate(std::size_t samples) override;

    DPTK_INLINE void begin(const OwnStep& own) override;
    [[nodiscard]] bool has_begun() const noexcept override { return header_.has_started(); }

    /// From then on the weight of this rank's gradients is known.
    [[nodiscard]] DPTK_INLINE bool may_proceed(OwnStep& own) override;

    DPTK_INLINE void send(const ModelBuffers& buffers, int root, const OwnStep&) override;

    [[nodiscard]] DPTK_INLINE bool finish(OwnStep& own, const UnusedParameters& unused,
                                          StepClock& clock) override;

    DPTK_INLINE void reset() override;

    DPTK_INLINE void forget_sums() override;

  private:
    DPTK_INLINE void launch_bucket(std::size_t b, const OwnStep& own,
                                   const std::vector<bool>& takes_part) override;

    /// Copies a bucket's gradients in, weighted.
    void copy_in(std::size_t b, const OwnStep& own, const std::vector<bool>& takes_part);

    /// Copies a bucket's averages out.
    void copy_out(std::size_t b, const OwnStep& own, const UnusedParameters& unused);

    [[nodiscard]] StepHeader::Own header(const OwnStep& own) const;

    /// Of this rank's gradients, of those that were accumulated as well.
    [[nodiscard]] double rank_weight(const OwnStep& own) const;

    /// Of this step's own gradients, as they are copied in. Without a hook and sample counts the reduction
    /// itself averages.
    [[nodiscard]] double copy_weight(const OwnStep& own) const;

    BucketSet::Outcome outcome_;
    bool may_leave_early_;
    StepHeader header_;
    GradientAccumulator sums_;
    BucketTraffic traffic_;
};

}  // namespace DPTK_NAMESPACE::detail

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/ddp/detail/host_steps.ipp"
#endif
