/// Optimizers that step all parameters of a network on a GPU in one pass.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "dptk/core/config.hpp"
#include "dptk/core/cuda/memory.hpp"
#include "dptk/ddp/parameter_ref.hpp"
#include "dptk/nn/cuda/kernels.hpp"
#include "dptk/optim/adam.hpp"
#include "dptk/optim/sgd.hpp"

namespace DPTK_NAMESPACE::nn {

namespace cuda {

/// The states and the clock of an optimizer, in device memory.
class FusedOptimizer {
  public:
    /// `states`: how many numbers it remembers of each element.
    FusedOptimizer(double lr, std::size_t states, StreamRef stream);

    /// From the next step on, also in a graph that was captured. Blocks until the device has it.
    void set_lr(double lr);

  protected:
    [[nodiscard]] std::span<const kernels::OptimizerTensor> tensors(std::span<const ParameterRef> parameters);

    [[nodiscard]] kernels::OptimizerClock* clock() noexcept;
    [[nodiscard]] StreamRef stream() const noexcept { return stream_; }

  private:
    struct Clock {
        kernels::OptimizerClock value;
    };

    void send_clock();

    std::size_t states_;
    StreamRef stream_;
    Clock host_clock_;
    dptk::cuda::DeviceBuffer<Clock> clock_;
    std::vector<std::vector<dptk::cuda::DeviceBuffer<float>>> state_;
    std::vector<kernels::OptimizerTensor> tensors_;
};

}  // namespace cuda

/// SGD<float> on a GPU, with the same formula.
class FusedSGD : public cuda::FusedOptimizer {
  public:
    explicit FusedSGD(SgdOptions options, StreamRef stream = {});

    /// Puts a step of all parameters, always the same ones, on the stream.
    void step(std::span<const ParameterRef> parameters);

  private:
    SgdOptions options_;
};

/// Adam<float> on a GPU, with the same formula.
class FusedAdam : public cuda::FusedOptimizer {
  public:
    explicit FusedAdam(AdamOptions options = {}, StreamRef stream = {})
        : FusedAdam(options, false, dptk::Adam<float>(options).lr(), stream) {}

    /// Puts a step of all parameters, always the same ones, on the stream.
    void step(std::span<const ParameterRef> parameters);

  protected:
    FusedAdam(const AdamOptions& options, bool is_decoupled, double lr, StreamRef stream);

  private:
    cuda::kernels::AdamStep options_;
};

/// AdamW<float> on a GPU, with the same formula.
class FusedAdamW : public FusedAdam {
  public:
    explicit FusedAdamW(AdamOptions options = {.weight_decay = 0.01}, StreamRef stream = {})
        : FusedAdam(options, true, dptk::AdamW<float>(options).lr(), stream) {}
};

}  // namespace DPTK_NAMESPACE::nn

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/nn/cuda/optimizer.ipp"
#endif
