/// CudaLane, the DeviceLane implemented with CUDA and dptk's kernels. Including this header registers it.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "dptk/core/config.hpp"
#include "dptk/core/cuda/detail/device_math.hpp"
#include "dptk/core/cuda/detail/kernels.hpp"
#include "dptk/core/cuda/device.hpp"
#include "dptk/core/cuda/event.hpp"
#include "dptk/core/cuda/memory.hpp"
#include "dptk/core/cuda/stream.hpp"
#include "dptk/core/detail/device_calls.hpp"
#include "dptk/core/detail/device_lane.hpp"

namespace DPTK_NAMESPACE::cuda::detail {

class CudaLane final : public dptk::detail::DeviceLane {
  public:
    CudaLane(int device, StreamRef program);

    /// Blocks until the device has finished all of its work.
    DPTK_INLINE ~CudaLane() override;

    [[nodiscard]] Device device() const noexcept override { return {DeviceType::cuda, device_}; }
    [[nodiscard]] StreamRef stream() const noexcept override { return stream_; }

    [[nodiscard]] bool is_captured() const override { return is_capturing(program_); }

    DPTK_INLINE void wait_for_user_stream() override;

    DPTK_INLINE void make_user_stream_wait() override;

    DPTK_INLINE void write_words(std::span<const double, word_count> own) override;

    [[nodiscard]] DPTK_INLINE Buffer words() noexcept override;

    using DeviceLane::copy;

    DPTK_INLINE void copy(std::span<const dptk::detail::LaneCopy> tensors,
                          const dptk::detail::LaneWeight& weight, DType from) override;

    DPTK_INLINE void accumulate(std::span<const dptk::detail::LaneCopy> tensors, double factor,
                                DType from) override;

    [[nodiscard]] DPTK_INLINE std::shared_ptr<void> allocate(std::size_t bytes) override;

    DPTK_INLINE void write(const Buffer& element, double value) override;

    DPTK_INLINE void write_all(const Buffer& to, const void* from) override;

    DPTK_INLINE void read(const Buffer& from, void* to) override;

    [[nodiscard]] dptk::detail::DeviceMath& math() noexcept override { return math_; }

    DPTK_INLINE void record_step_status(const Buffer& status) override;

    [[nodiscard]] DPTK_INLINE bool has_failed_step(bool all) override;

  private:
    /// The number of failed steps so far, copied to the host when a step was recorded.
    struct Report {
        PinnedBuffer<double> bad_steps;
        std::optional<Event> copied;
    };

    /// Collects the tensors that have elements, except those for which `is_copied` returns true.
    template <class IsCopied>
    void collect_copies(std::span<const dptk::detail::LaneCopy> tensors, IsCopied&& is_copied) {
        copies_.clear();
        for (const dptk::detail::LaneCopy& tensor : tensors) {
            if (tensor.to.count > 0 && !is_copied(tensor))
                copies_.push_back({tensor.from, tensor.to.data, real_count(tensor.to)});
        }
    }

    [[nodiscard]] double* bad_steps() noexcept { return words_.data() + word_count; }

    [[nodiscard]] bool has_increased(double bad_steps) noexcept;

    int device_;
    std::optional<DeviceScope> scope_;  // set only during construction
    StreamRef program_;
    Stream stream_;
    CudaMath math_;
    DeviceBuffer<double> words_;
    std::vector<Report> reports_;
    std::size_t judged_ = 0;
    double known_bad_steps_ = 0;
    std::vector<kernels::CopiedTensor> copies_;
};

inline const bool lanes_are_registered = [] {
    dptk::detail::registered_lane_maker() = [](int device, StreamRef program) {
        return std::unique_ptr<dptk::detail::DeviceLane>(std::make_unique<CudaLane>(device, program));
    };
    return true;
}();

}  // namespace DPTK_NAMESPACE::cuda::detail

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/core/cuda/detail/device_lane.ipp"
#endif
