/// Steps of a training whose gradients are all in device memory: they are copied, summed and copied back in
/// streams of dptk's own, and the host waits for none of it. What was wrong with a step, it hears of in the
/// next.
#pragma once

#include <cstddef>
#include <exception>
#include <memory>
#include <vector>

#include "dptk/comm/process_group.hpp"
#include "dptk/comm/work.hpp"
#include "dptk/core/config.hpp"
#include "dptk/core/detail/device_lane.hpp"
#include "dptk/ddp/detail/device_lanes.hpp"
#include "dptk/ddp/detail/gradient_steps.hpp"
#include "dptk/ddp/detail/hook_runner.hpp"

namespace DPTK_NAMESPACE::detail {

class DeviceSteps final : public GradientSteps {
  public:
    /// `is_own`: nobody else uses the group.
    DeviceSteps(ProcessGroup& group, const ModelParameters& parameters, BucketSet& buckets, DeviceLanes lanes,
                bool is_own);

    /// Logs what is wrong with a step that nobody has heard of yet; blocks until they are over.
    DPTK_INLINE ~DeviceSteps() override;

    DPTK_INLINE void set_hook(std::shared_ptr<CommHook> hook) override;

    [[nodiscard]] bool is_captured() const override { return lanes_[0].is_captured(); }

    DPTK_INLINE void check_capturable() const override;

    void take_new_buckets() override { has_repeated_ = false; }

    DPTK_INLINE void accumulate(std::size_t samples) override;

    DPTK_INLINE void forget_sums() override;

    DPTK_INLINE void begin(const OwnStep& own) override;
    [[nodiscard]] bool has_begun() const noexcept override { return has_begun_; }

    /// The devices alone know.
    [[nodiscard]] DPTK_INLINE bool may_proceed(OwnStep& own) override;

    /// As bytes, by memory of dptk's own: a rank that cannot read its buffers takes part all the same.
    DPTK_INLINE void send(const ModelBuffers& buffers, int root, const OwnStep& own) override;

    [[nodiscard]] DPTK_INLINE bool finish(OwnStep& own, const UnusedParameters& unused,
                                          StepClock& clock) override;

    [[nodiscard]] DPTK_INLINE bool status_ok(OwnStep& own) override;

    DPTK_INLINE void reset() override;

    [[nodiscard]] const DeviceLanes* lanes() const noexcept override { return &lanes_; }

  private:
    static void copy(DeviceLane& lane, const LaneCopy& tensor, const LaneWeight& weight, DType from);

    static void zero(DeviceLane& lane, const Buffer& elements);

    // ---- sums of micro-batches

    void accumulate_bucket(std::size_t b, double samples);

    /// This step's own gradients go to the sums first, and these into the bucket, which leaves them zero.
    /// Where all micro-batches were empty there are none.
    void copy_in_sums(DeviceLane& lane, std::size_t b, const OwnStep& own,
                      const std::vector<bool>& takes_part);

    // ---- buffers

    void send_those_on(std::size_t n, const ModelBuffers& buffers, int root, const OwnStep& own);

    // ---- buckets

    DPTK_INLINE void launch_bucket(std::size_t b, const OwnStep& own,
                                   const std::vector<bool>& takes_part) override;

    void copy_in(DeviceLane& lane, std::size_t b, const OwnStep& own, const std::vector<bool>& takes_part);

    /// Of `samples` of this rank's, where it counts them.
    [[nodiscard]] LaneWeight weight_of(DeviceLane& lane, const OwnStep& own, std::size_t samples) const;

    [[nodiscard]] bool is_last(std::size_t b) const noexcept { return b + 1 == buckets_.size(); }
    [[nodiscard]] static double status_of(const OwnStep& own) { return own.problem.empty() ? 0 : 1; }

    void sum_bucket(DeviceLane& lane, std::size_t b, const OwnStep& own);

    void run_hook(std::size_t n, std::size_t b, const OwnStep& own);

    /// Beside a hook, which knows of none.
    [[nodiscard]] Buffer own_status(std::size_t n) const { return for_hooks_[n].elements.slice(1, 1); }

    /// Blocks where averages come through the host.
    void copy_out(std::size_t b, const OwnStep& own, const UnusedParameters& unused);

    // ---- the end of a step

    /// The program's streams go on behind the averages.
    void judge();

    [[nodiscard]] bool was_bad(bool all);

    /// `step`: what this rank knows of the one that has been judged.
    [[nodiscard]] bool status_ok(OwnStep& own, const OwnStep& step, bool all);

    [[nodiscard]] Work start_sum(const DeviceLane& lane, const Buffer& elements);

    /// Beside the lane, which comes behind it where somebody waits for it; in the lane where that goes into a
    /// graph. Collective.
    [[nodiscard]] Work start(const DeviceLane& lane, Collective call, std::shared_ptr<const void> keep_alive);

    DeviceLanes lanes_;
    bool is_own_;
    std::unique_ptr<HookRunner> hook_;
    bool has_begun_ = false;
    bool repeats_ = false;                // this step does on the devices what all later ones do
    bool has_repeated_ = false;           // the last one has, with these buckets
    OwnStep last_;                        // that has been judged
    std::vector<Work> words_;             // on their way; by lane
    std::vector<Work> works_;             // by bucket
    std::vector<OwnedBuffer> buffers_;    // by lane
    std::vector<OwnedBuffer> for_hooks_;  // by lane: a rank's weight, and its status
    std::vector<OwnedBuffer> sums_;       // by parameter: of gradients, each times its samples
    int uncaught_exceptions_ = std::uncaught_exceptions();
};

}  // namespace DPTK_NAMESPACE::detail

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/ddp/detail/device_steps.ipp"
#endif
