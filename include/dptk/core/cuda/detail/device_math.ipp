#pragma once

#include "dptk/core/cuda/detail/device_math.hpp"

#include "dptk/core/cuda/device.hpp"

namespace DPTK_NAMESPACE::cuda::detail {

DPTK_INLINE DType real_type(DType type) noexcept {
    if (type == DType::c64) return DType::f32;
    return type == DType::c128 ? DType::f64 : type;
}

DPTK_INLINE std::size_t real_count(const Buffer& buffer) noexcept {
    return is_complex(buffer.dtype) ? 2 * buffer.count : buffer.count;
}

DPTK_INLINE void CudaMath::norm(std::span<const Buffer> gradients, double norm_type, double max_norm,
                                const Buffer& norm) {
    const DeviceScope on(device_);
    std::size_t parts = 0;
    for_each_type(gradients, [&](DType) { parts += kernels::norm_part_count(tensors_); });
    if (parts > parts_.size()) parts_ = DeviceBuffer<double>(parts);
    std::size_t first = 0;
    for_each_type(gradients, [&](DType type) {
        kernels::norm_parts(tensors_, type, norm_type, parts_.data() + first, stream_);
        first += kernels::norm_part_count(tensors_);
    });
    kernels::finish_norm(parts_.data(), parts, norm_type, max_norm, static_cast<kernels::Norm*>(norm.data),
                         stream_);
}

DPTK_INLINE void CudaMath::divide(std::span<const Buffer> gradients, const void* divisor) {
    multiply_all(gradients, {.factor = 1, .divisor = static_cast<const double*>(divisor)}, nullptr);
}

DPTK_INLINE void CudaMath::scale(std::span<const Buffer> gradients, double factor,
                                 const Buffer& found_nonfinite) {
    multiply_all(gradients, {.factor = factor}, static_cast<int*>(found_nonfinite.data));
}

DPTK_INLINE void CudaMath::clamp(std::span<const Buffer> gradients, double limit) {
    const DeviceScope on(device_);
    for_each_type(gradients, [&](DType type) { kernels::clamp_all(tensors_, type, limit, stream_); });
}

DPTK_INLINE void CudaMath::multiply(const dptk::detail::LowRank& matrix) {
    const DeviceScope on(device_);
    kernels::multiply(matrix, stream_);
}

DPTK_INLINE void CudaMath::multiply_transposed(const dptk::detail::LowRank& matrix) {
    const DeviceScope on(device_);
    kernels::multiply_transposed(matrix, stream_);
}

DPTK_INLINE void CudaMath::expand(const dptk::detail::LowRank& matrix) {
    const DeviceScope on(device_);
    kernels::expand(matrix, stream_);
}

DPTK_INLINE void CudaMath::orthogonalize(float* matrix, std::size_t rows, std::size_t rank) {
    const DeviceScope on(device_);
    kernels::orthogonalize(matrix, rows, rank, stream_);
}

DPTK_INLINE void CudaMath::multiply_all(std::span<const Buffer> gradients, const kernels::CopyWeight& weight,
                                        int* found) {
    const DeviceScope on(device_);
    for_each_type(gradients, [&](DType type) {
        copies_.clear();
        for (const kernels::Tensor& tensor : tensors_)
            copies_.push_back({tensor.data, tensor.data, tensor.count});
        kernels::copy_all(copies_, {.from = type, .to = type, .found_nonfinite = found}, weight, stream_);
    });
}

}  // namespace DPTK_NAMESPACE::cuda::detail
