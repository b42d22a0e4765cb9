/// DeviceLane over CUDA and dptk's kernels. Including this registers it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "dptk/core/cuda/copy.hpp"
#include "dptk/core/cuda/device.hpp"
#include "dptk/core/cuda/device_math.hpp"
#include "dptk/core/cuda/event.hpp"
#include "dptk/core/cuda/kernels.hpp"
#include "dptk/core/cuda/memory.hpp"
#include "dptk/core/cuda/stream.hpp"
#include "dptk/core/device_calls.hpp"
#include "dptk/core/device_lane.hpp"

namespace dptk::cuda::detail {

class CudaLane final : public dptk::detail::DeviceLane {
  public:
    CudaLane(int device, StreamRef program)
        : device_(device),
          scope_(device),
          program_(program),
          stream_(StreamPriority::high),
          math_(device, stream_),
          words_(word_count + 1),
          reports_(2) {
        check(cudaMemsetAsync(words_.data(), 0, words_.size() * sizeof(double), stream_.get()),
              "cudaMemsetAsync");
        scope_.reset();
    }

    /// Blocks until the device has done all that it has been given.
    ~CudaLane() override { await_device(device_); }

    [[nodiscard]] Device device() const noexcept override { return {DeviceType::cuda, device_}; }
    [[nodiscard]] StreamRef stream() const noexcept override { return stream_; }

    [[nodiscard]] bool is_captured() const override { return is_capturing(program_); }

    void follow_program() override {
        const DeviceScope on(device_);
        Event(program_).order_before(stream_);
    }

    void lead_program() override {
        const DeviceScope on(device_);
        Event(stream_).order_before(program_);
    }

    void write_words(std::span<const double, word_count> own) override {
        const DeviceScope on(device_);
        kernels::write_words(words_.data(), {own[0], own[1], own[2], own[3]}, stream_);
    }

    [[nodiscard]] Buffer words() noexcept override {
        return {words_.data(), word_count, DType::f64, device()};
    }

    using DeviceLane::copy;

    void copy(std::span<const dptk::detail::LaneCopy> tensors, const dptk::detail::LaneWeight& weight,
              DType from) override {
        note_copies(tensors, [&](const dptk::detail::LaneCopy& tensor) {
            return tensor.to.data == tensor.from && weight.factor == 1 && weight.divisor == nullptr;
        });
        if (copies_.empty()) return;
        const DeviceScope on(device_);
        kernels::copy_all(copies_, {.from = real_type(from), .to = real_type(tensors[0].to.dtype)},
                          {.factor = weight.factor, .divisor = static_cast<const double*>(weight.divisor)},
                          stream_);
    }

    void accumulate(std::span<const dptk::detail::LaneCopy> tensors, double factor, DType from) override {
        note_copies(tensors, [](const dptk::detail::LaneCopy&) { return false; });
        if (copies_.empty()) return;
        const DeviceScope on(device_);
        kernels::accumulate_all(copies_, {.from = real_type(from), .to = real_type(tensors[0].to.dtype)},
                                factor, stream_);
    }

    [[nodiscard]] std::shared_ptr<void> allocate(std::size_t bytes) override {
        const DeviceScope on(device_);
        const auto memory = std::make_shared<DeviceBuffer<std::byte>>(bytes);
        check(cudaMemsetAsync(memory->data(), 0, bytes, stream_.get()), "cudaMemsetAsync");
        return {memory, memory->data()};
    }

    void write(const Buffer& element, double value) override {
        const DeviceScope on(device_);
        kernels::write_scalar(element.data, real_type(element.dtype), value, stream_);
    }

    void write_all(const Buffer& to, const void* from) override {
        const DeviceScope on(device_);
        copy_bytes(to.data, from, to.bytes(), stream_);
    }

    void read(const Buffer& from, void* to) override {
        const DeviceScope on(device_);
        copy_bytes(to, from.data, from.bytes(), stream_);
        stream_.synchronize();
    }

    [[nodiscard]] dptk::detail::DeviceMath& math() noexcept override { return math_; }

    void judge(const Buffer& status) override {
        const DeviceScope on(device_);
        kernels::judge_step(words_.data(), status.data, real_type(status.dtype), bad_steps(), stream_);
        if (is_capturing(program_)) return;  // what a graph's steps come to, was_bad(true) tells
        Report& report = reports_[judged_++ % reports_.size()];
        if (report.bad_steps.size() == 0) report.bad_steps = PinnedBuffer<double>(1);
        copy_bytes(report.bad_steps.data(), bad_steps(), sizeof(double), stream_);
        report.there.emplace(stream_);
    }

    [[nodiscard]] bool was_bad(bool all) override {
        if (all) {
            follow_program();  // where graphs were launched
            double found = 0;
            read({bad_steps(), 1, DType::f64, device()}, &found);
            return is_news(found);
        }
        if (judged_ < 2 || is_capturing(program_)) return false;
        const Report& report = reports_[judged_ % reports_.size()];
        report.there->synchronize();
        return is_news(report.bad_steps[0]);
    }

  private:
    /// How many steps had been bad when a step was judged.
    struct Report {
        PinnedBuffer<double> bad_steps;
        std::optional<Event> there;
    };

    /// Those that have elements, but for what `is_there`.
    template <class IsThere>
    void note_copies(std::span<const dptk::detail::LaneCopy> tensors, IsThere&& is_there) {
        copies_.clear();
        for (const dptk::detail::LaneCopy& tensor : tensors) {
            if (tensor.to.count > 0 && !is_there(tensor))
                copies_.push_back({tensor.from, tensor.to.data, real_count(tensor.to)});
        }
    }

    [[nodiscard]] double* bad_steps() noexcept { return words_.data() + word_count; }

    [[nodiscard]] bool is_news(double bad_steps) noexcept {
        if (!(bad_steps > known_bad_steps_)) return false;  // a report may be older than one read before
        known_bad_steps_ = bad_steps;
        return true;
    }

    int device_;
    std::optional<DeviceScope> scope_;  // while it is made
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

}  // namespace dptk::cuda::detail
