#pragma once

#include "dptk/core/cuda/detail/device_lane.hpp"

#include "dptk/core/cuda/copy.hpp"

namespace DPTK_NAMESPACE::cuda::detail {

DPTK_INLINE CudaLane::CudaLane(int device, StreamRef program)
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

DPTK_INLINE CudaLane::~CudaLane() {
    wait_for_device(device_);
}

DPTK_INLINE void CudaLane::wait_for_user_stream() {
    const DeviceScope on(device_);
    Event(program_).order_before(stream_);
}

DPTK_INLINE void CudaLane::make_user_stream_wait() {
    const DeviceScope on(device_);
    Event(stream_).order_before(program_);
}

DPTK_INLINE void CudaLane::write_words(std::span<const double, word_count> own) {
    const DeviceScope on(device_);
    kernels::write_words(words_.data(), {own[0], own[1], own[2], own[3]}, stream_);
}

DPTK_INLINE Buffer CudaLane::words() noexcept {
    return {words_.data(), word_count, DType::f64, device()};
}

DPTK_INLINE void CudaLane::copy(std::span<const dptk::detail::LaneCopy> tensors,
                                const dptk::detail::LaneWeight& weight, DType from) {
    collect_copies(tensors, [&](const dptk::detail::LaneCopy& tensor) {
        return tensor.to.data == tensor.from && weight.factor == 1 && weight.divisor == nullptr;
    });
    if (copies_.empty()) return;
    const DeviceScope on(device_);
    kernels::copy_all(copies_, {.from = real_type(from), .to = real_type(tensors[0].to.dtype)},
                      {.factor = weight.factor, .divisor = static_cast<const double*>(weight.divisor)},
                      stream_);
}

DPTK_INLINE void CudaLane::accumulate(std::span<const dptk::detail::LaneCopy> tensors, double factor,
                                      DType from) {
    collect_copies(tensors, [](const dptk::detail::LaneCopy&) { return false; });
    if (copies_.empty()) return;
    const DeviceScope on(device_);
    kernels::accumulate_all(copies_, {.from = real_type(from), .to = real_type(tensors[0].to.dtype)}, factor,
                            stream_);
}

DPTK_INLINE std::shared_ptr<void> CudaLane::allocate(std::size_t bytes) {
    const DeviceScope on(device_);
    const auto memory = std::make_shared<DeviceBuffer<std::byte>>(bytes);
    check(cudaMemsetAsync(memory->data(), 0, bytes, stream_.get()), "cudaMemsetAsync");
    return {memory, memory->data()};
}

DPTK_INLINE void CudaLane::write(const Buffer& element, double value) {
    const DeviceScope on(device_);
    kernels::write_scalar(element.data, real_type(element.dtype), value, stream_);
}

DPTK_INLINE void CudaLane::write_all(const Buffer& to, const void* from) {
    const DeviceScope on(device_);
    copy_bytes(to.data, from, to.bytes(), stream_);
}

DPTK_INLINE void CudaLane::read(const Buffer& from, void* to) {
    const DeviceScope on(device_);
    copy_bytes(to, from.data, from.bytes(), stream_);
    stream_.synchronize();
}

DPTK_INLINE void CudaLane::record_step_status(const Buffer& status) {
    const DeviceScope on(device_);
    kernels::count_failed_step(words_.data(), status.data, real_type(status.dtype), bad_steps(), stream_);
    if (is_capturing(program_)) return;  // has_failed_step(true) reports the result of captured steps
    Report& report = reports_[judged_++ % reports_.size()];
    if (report.bad_steps.size() == 0) report.bad_steps = PinnedBuffer<double>(1);
    copy_bytes(report.bad_steps.data(), bad_steps(), sizeof(double), stream_);
    report.copied.emplace(stream_);
}

DPTK_INLINE bool CudaLane::has_failed_step(bool all) {
    if (all) {
        wait_for_user_stream();  // graphs are launched on the user's stream
        double found = 0;
        read({bad_steps(), 1, DType::f64, device()}, &found);
        return has_increased(found);
    }
    if (judged_ < 2 || is_capturing(program_)) return false;
    const Report& report = reports_[judged_ % reports_.size()];
    report.copied->synchronize();
    return has_increased(report.bad_steps[0]);
}

DPTK_INLINE bool CudaLane::has_increased(double bad_steps) noexcept {
    if (!(bad_steps > known_bad_steps_)) return false;  // the count may be older than the known one
    known_bad_steps_ = bad_steps;
    return true;
}

}  // namespace DPTK_NAMESPACE::cuda::detail
