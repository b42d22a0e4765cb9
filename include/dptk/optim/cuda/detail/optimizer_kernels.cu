// CUDA kernels of the fused optimizers.
#include <cstdint>

#include "dptk/core/config.hpp"
#include "dptk/core/cuda/error.hpp"
#include "dptk/core/cuda/multi_tensor.cuh"
#include "dptk/optim/cuda/detail/optimizer_kernels.hpp"

namespace DPTK_NAMESPACE::cuda::detail {

namespace {

constexpr unsigned block_size = 256;

struct Sgd {
    SGDStep options;
    const OptimizerProgress* progress;

    struct Factors {
        float lr;
    };
    __device__ Factors prepare() const { return {static_cast<float>(progress->lr)}; }

    __device__ void step(const Factors& factors, float& value, float gradient, float* first,
                         float* /*second*/) const {
        gradient += options.weight_decay * value;
        if (first != nullptr) gradient = *first = options.momentum * *first + gradient;
        value -= factors.lr * gradient;
    }
};

struct Adam {
    AdamStep options;
    const OptimizerProgress* progress;

    struct Factors {
        float step_size;
        float root;
        float shrink;
        float penalty;
    };
    __device__ Factors prepare() const {
        const auto t = static_cast<double>(progress->step);
        return {static_cast<float>(progress->lr / (1 - pow(options.beta1, t))),
                static_cast<float>(sqrt(1 - pow(options.beta2, t))),
                options.is_decoupled ? static_cast<float>(1 - progress->lr * options.weight_decay) : 1.0F,
                options.is_decoupled ? 0.0F : static_cast<float>(options.weight_decay)};
    }

    __device__ void step(const Factors& factors, float& value, float gradient, float* first,
                         float* second) const {
        const float g = gradient + factors.penalty * value;
        value *= factors.shrink;
        *first = static_cast<float>(options.beta1) * *first + static_cast<float>(1 - options.beta1) * g;
        *second = static_cast<float>(options.beta2) * *second + static_cast<float>(1 - options.beta2) * g * g;
        value -= factors.step_size * *first /
                 (sqrtf(*second) / factors.root + static_cast<float>(options.eps));
    }
};

/// Updates `size` adjacent elements.
template <unsigned size, class Rule>
__device__ void step_group(const OptimizerTensor& tensor, std::size_t group, const Rule& rule,
                           const typename Rule::Factors& factors) {
    struct alignas(size * sizeof(float)) Group {
        float values[size];
    };
    const auto at = [&](auto* data) { return reinterpret_cast<Group*>(const_cast<float*>(data)) + group; };
    Group value = *at(tensor.value);
    const Group gradient = *at(tensor.gradient);
    Group first{};
    Group second{};
    if (tensor.first != nullptr) first = *at(tensor.first);
    if (tensor.second != nullptr) second = *at(tensor.second);
#pragma unroll
    for (unsigned i = 0; i < size; ++i)
        rule.step(factors, value.values[i], gradient.values[i],
                  tensor.first != nullptr ? &first.values[i] : nullptr, &second.values[i]);
    *at(tensor.value) = value;
    if (tensor.first != nullptr) *at(tensor.first) = first;
    if (tensor.second != nullptr) *at(tensor.second) = second;
}

template <class Rule>
__global__ void step_kernel(const __grid_constant__ TensorTable<OptimizerTensor> table, Rule rule) {
    __shared__ typename Rule::Factors factors;
    if (threadIdx.x == 0) factors = rule.prepare();
    __syncthreads();
    const auto [tensor, begin, end] = table.own_piece();
    const auto is_aligned = [](const float* data) { return reinterpret_cast<std::uintptr_t>(data) % 16 == 0; };
    std::size_t done = begin;
    if (is_aligned(tensor.value) && is_aligned(tensor.gradient) && is_aligned(tensor.first) &&
        is_aligned(tensor.second)) {
        const std::size_t groups = (end - begin) / 4;
        for (std::size_t group = threadIdx.x; group < groups; group += blockDim.x)
            step_group<4>(tensor, begin / 4 + group, rule, factors);
        done = begin + groups * 4;
    }
    for (std::size_t i = done + threadIdx.x; i < end; i += blockDim.x) step_group<1>(tensor, i, rule, factors);
}

__global__ void count_step_kernel(OptimizerProgress* progress) {
    ++progress->step;
}

template <class Rule>
void step_all(std::span<const OptimizerTensor> tensors, const Rule& rule, OptimizerProgress* progress,
              StreamRef stream) {
    for_each_tensor(tensors, [&](const TensorTable<OptimizerTensor>& table) {
        step_kernel<<<table.blocks(), block_size, 0, stream.get()>>>(table, rule);
        check(cudaGetLastError(), "step_kernel");
    });
    count_step_kernel<<<1, 1, 0, stream.get()>>>(progress);
    check(cudaGetLastError(), "count_step_kernel");
}

}  // namespace

void sgd_step(std::span<const OptimizerTensor> tensors, const SGDStep& options, OptimizerProgress* progress,
              StreamRef stream) {
    step_all(tensors, Sgd{options, progress}, progress, stream);
}

void adam_step(std::span<const OptimizerTensor> tensors, const AdamStep& options, OptimizerProgress* progress,
               StreamRef stream) {
    step_all(tensors, Adam{options, progress}, progress, stream);
}

}  // namespace DPTK_NAMESPACE::cuda::detail
