/// DeviceMath over CUDA and dptk's kernels.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "dptk/core/cuda/device.hpp"
#include "dptk/core/cuda/gradient_math.hpp"
#include "dptk/core/cuda/kernels.hpp"
#include "dptk/core/cuda/memory.hpp"
#include "dptk/core/device_math.hpp"

namespace dptk::cuda::detail {

/// Complex numbers are two real ones.
[[nodiscard]] inline DType real_type(DType type) noexcept {
    if (type == DType::c64) return DType::f32;
    return type == DType::c128 ? DType::f64 : type;
}
[[nodiscard]] inline std::size_t real_count(const Buffer& buffer) noexcept {
    return is_complex(buffer.dtype) ? 2 * buffer.count : buffer.count;
}

class CudaMath final : public dptk::detail::DeviceMath {
  public:
    CudaMath(int device, StreamRef stream) : device_(device), stream_(stream) {}

    void norm(std::span<const Buffer> gradients, double norm_type, double max_norm,
              const Buffer& norm) override {
        const DeviceScope on(device_);
        std::size_t parts = 0;
        for_each_type(gradients, [&](DType) { parts += kernels::norm_part_count(tensors_); });
        if (parts > parts_.size()) parts_ = DeviceBuffer<double>(parts);
        std::size_t first = 0;
        for_each_type(gradients, [&](DType type) {
            kernels::norm_parts(tensors_, type, norm_type, parts_.data() + first, stream_);
            first += kernels::norm_part_count(tensors_);
        });
        kernels::finish_norm(parts_.data(), parts, norm_type, max_norm,
                             static_cast<kernels::Norm*>(norm.data), stream_);
    }

    void divide(std::span<const Buffer> gradients, const void* divisor) override {
        multiply_all(gradients, {.factor = 1, .divisor = static_cast<const double*>(divisor)}, nullptr);
    }

    void scale(std::span<const Buffer> gradients, double factor, const Buffer& found_nonfinite) override {
        multiply_all(gradients, {.factor = factor}, static_cast<int*>(found_nonfinite.data));
    }

    void clamp(std::span<const Buffer> gradients, double limit) override {
        const DeviceScope on(device_);
        for_each_type(gradients, [&](DType type) { kernels::clamp_all(tensors_, type, limit, stream_); });
    }

    void multiply(const dptk::detail::LowRank& matrix) override {
        const DeviceScope on(device_);
        kernels::multiply(matrix, stream_);
    }
    void multiply_transposed(const dptk::detail::LowRank& matrix) override {
        const DeviceScope on(device_);
        kernels::multiply_transposed(matrix, stream_);
    }
    void expand(const dptk::detail::LowRank& matrix) override {
        const DeviceScope on(device_);
        kernels::expand(matrix, stream_);
    }
    void orthogonalize(float* matrix, std::size_t rows, std::size_t rank) override {
        const DeviceScope on(device_);
        kernels::orthogonalize(matrix, rows, rank, stream_);
    }

  private:
    /// Calls action(type) with all tensors of that type in tensors_; complex numbers are two real ones.
    template <class Action>
    void for_each_type(std::span<const Buffer> gradients, Action&& action) {
        for (const DType type : {DType::f16, DType::bf16, DType::f32, DType::f64}) {
            tensors_.clear();
            for (const Buffer& gradient : gradients) {
                if (real_type(gradient.dtype) == type && gradient.count > 0)
                    tensors_.push_back({gradient.data, real_count(gradient)});
            }
            if (!tensors_.empty()) action(type);
        }
    }

    void multiply_all(std::span<const Buffer> gradients, const kernels::CopyWeight& weight, int* found) {
        const DeviceScope on(device_);
        for_each_type(gradients, [&](DType type) {
            copies_.clear();
            for (const kernels::Tensor& tensor : tensors_)
                copies_.push_back({tensor.data, tensor.data, tensor.count});
            kernels::copy_all(copies_, {.from = type, .to = type, .found_nonfinite = found}, weight, stream_);
        });
    }

    int device_;
    StreamRef stream_;
    DeviceBuffer<double> parts_;
    std::vector<kernels::Tensor> tensors_;
    std::vector<kernels::CopiedTensor> copies_;
};

}  // namespace dptk::cuda::detail
