/// Asynchronous steps for gradients in device memory: gradients are copied, summed and copied back on
/// dptk's own CUDA streams, and the host does not wait. Errors of a step are reported in the next step.
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
    /// `is_own` says that the group is used by this training only.
    DeviceSteps(ProcessGroup& group, const ModelParameters& parameters, BucketSet& buckets,
                const DistributedDataParallelOptions& options, DeviceLanes lanes, bool is_own);

    /// Waits for the steps on the devices, and logs errors that have not been reported.
    DPTK_INLINE ~DeviceSteps() override;

    DPTK_INLINE void set_hook(std::shared_ptr<CommHook> hook) override;

    [[nodiscard]] bool is_captured() const override { return lanes_[0].is_captured(); }

    DPTK_INLINE void check_capturable() const override;

    void on_buckets_rebuilt() override { has_repeated_ = false; }

    DPTK_INLINE void accumulate(std::size_t samples) override;

    DPTK_INLINE void discard_sums() override;

    DPTK_INLINE void begin(const LocalStep& own) override;
    [[nodiscard]] bool has_begun() const noexcept override { return has_begun_; }

    /// Always returns true: only the devices know whether a rank has a problem.
    [[nodiscard]] DPTK_INLINE bool may_proceed(LocalStep& own) override;

    /// Sends the buffers as bytes, through dptk's own memory, so that a rank that cannot read its buffers
    /// still takes part in the collective.
    DPTK_INLINE void send(const ModelBuffers& buffers, int root, const LocalStep& own) override;

    [[nodiscard]] DPTK_INLINE bool finish(LocalStep& own, const UnusedParameters& unused,
                                          StepClock& clock) override;

    [[nodiscard]] DPTK_INLINE bool status_ok(LocalStep& own) override;

    DPTK_INLINE void reset() override;

    [[nodiscard]] const DeviceLanes* lanes() const noexcept override { return &lanes_; }

  private:
    static void copy(DeviceLane& lane, const LaneCopy& tensor, const LaneWeight& weight, DType from);

    static void zero(DeviceLane& lane, const Buffer& elements);

    // ---- sums of micro-batches

    void accumulate_bucket(std::size_t b, double weight);

    /// Adds this step's own gradients to the sums, copies the sums into the bucket, and resets the sums to
    /// zero. A parameter has no sum if all of its micro-batches were empty.
    void copy_in_sums(DeviceLane& lane, std::size_t b, const LocalStep& own,
                      const std::vector<bool>& takes_part);

    /// Returns the element type of the program's gradients in a bucket, which may be narrower than the
    /// bucket's.
    [[nodiscard]] DType gradient_dtype(std::size_t b) const;

    // ---- buffers

    void send_on_lane(std::size_t n, const ModelBuffers& buffers, int root, const LocalStep& own);

    // ---- buckets

    DPTK_INLINE void launch_bucket(std::size_t b, const LocalStep& own,
                                   const std::vector<bool>& takes_part) override;

    void copy_in(DeviceLane& lane, std::size_t b, const LocalStep& own, const std::vector<bool>& takes_part);

    /// Keeps the elements of gradients that lie in their buckets and do not take part: copy_out() restores
    /// them if no rank uses their parameters, or if this rank is a shadow.
    void keep_gradients(DeviceLane& lane, std::size_t b, const LocalStep& own,
                        const std::vector<bool>& takes_part);

    /// Returns the weight of `samples` samples of this rank in the average, or of a rank if samples are not
    /// counted.
    [[nodiscard]] LaneWeight weight_of(DeviceLane& lane, const LocalStep& own, std::size_t samples) const;

    /// Returns the factor for this step's own gradients as they are copied in.
    [[nodiscard]] LaneWeight copy_weight(DeviceLane& lane, const LocalStep& own) const;

    [[nodiscard]] bool is_last(std::size_t b) const noexcept { return b + 1 == buckets_.size(); }
    [[nodiscard]] static double status_of(const LocalStep& own) { return own.problem.empty() ? 0 : 1; }

    void sum_bucket(DeviceLane& lane, std::size_t b, const LocalStep& own);

    void run_hook(std::size_t n, std::size_t b, const LocalStep& own);

    /// Returns the status element for steps with a hook, since a HookBucket has no status element.
    [[nodiscard]] Buffer own_status(std::size_t n) const { return for_hooks_[n].elements.slice(1, 1); }

    /// Copies the averages out. Blocks if the transport stages device memory through the host.
    void copy_out(std::size_t b, const LocalStep& own, const UnusedParameters& unused);

    // ---- the end of a step

    /// Ends the step on the lanes: makes the devices record whether it failed, and makes the program's
    /// streams wait for the averages.
    void record_step_status();

    [[nodiscard]] bool has_failed_step(bool all);

    /// Returns whether no unreported step has failed. Otherwise sets `own` to `step`, this rank's record of
    /// the failed step.
    [[nodiscard]] bool status_ok(LocalStep& own, const LocalStep& step, bool all);

    [[nodiscard]] Work start_sum(const DeviceLane& lane, const Buffer& elements);

    /// Starts a collective after the lane's work so far. The lane waits for the result only when
    /// Work::wait() is called. While a CUDA graph is being captured, the collective runs in the lane.
    /// Collective.
    [[nodiscard]] Work start(const DeviceLane& lane, Collective call, std::shared_ptr<const void> keep_alive);

    DeviceLanes lanes_;
    bool is_own_;
    std::unique_ptr<HookRunner> hook_;
    bool has_begun_ = false;
    bool repeats_ = false;                // whether all later steps would repeat this step's device work
    bool has_repeated_ = false;           // whether repeats_ was true in the last step, with these buckets
    LocalStep last_;                      // the last step, whose outcome may be unknown
    std::vector<Work> words_;             // by lane: the sums of the step's status words
    std::vector<Work> works_;             // by bucket
    std::vector<OwnedBuffer> buffers_;    // by lane
    std::vector<OwnedBuffer> for_hooks_;  // by lane: the rank's weight, and its status
    std::vector<OwnedBuffer> sums_;       // by parameter: sums of weighted gradients
    std::vector<OwnedBuffer> kept_;       // by parameter
    std::vector<bool> is_kept_;           // by parameter
    int uncaught_exceptions_ = std::uncaught_exceptions();
};

}  // namespace DPTK_NAMESPACE::detail

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/ddp/detail/device_steps.ipp"
#endif
