/// Fused optimizers (SGD, Adam, AdamW) that update all parameters on a GPU in one pass.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "dptk/core/config.hpp"
#include "dptk/core/cuda/memory.hpp"
#include "dptk/core/parameter_ref.hpp"
#include "dptk/optim/adam.hpp"
#include "dptk/optim/cuda/detail/optimizer_kernels.hpp"
#include "dptk/optim/sgd.hpp"

namespace DPTK_NAMESPACE {

namespace cuda {

/// Base of the fused optimizers. Keeps the state arrays, the step number and the learning rate in device
/// memory.
class FusedOptimizer {
  public:
    /// `states` is the number of values that the optimizer stores for each element.
    FusedOptimizer(double lr, std::size_t states, StreamRef stream);

    /// Sets the learning rate of subsequent steps, including steps in CUDA graphs that were captured before.
    /// Blocks until the value is in device memory.
    void set_lr(double lr);

    /// Returns the learning rate of the next step.
    [[nodiscard]] double lr() const noexcept { return host_progress_.value.lr; }

    /// Returns the state of the parameter at index `slot`, like SGD::state() and Adam::state(). All
    /// parameters have the same number of steps. Blocks.
    [[nodiscard]] OptimizerState<float> state(std::size_t slot);

    /// Restores a state that state(slot) returned. Call it for all parameters. Blocks. Throws ArgumentError
    /// for a state of another kind of optimizer.
    void set_state(std::size_t slot, const OptimizerState<float>& state);

  protected:
    /// Returns the arrays of the parameters and of their states, which are made in the first call.
    [[nodiscard]] std::span<const detail::OptimizerTensor> tensors(std::span<const ParameterRef> parameters);

    /// Returns the step number and the learning rate, in device memory.
    [[nodiscard]] detail::OptimizerProgress* progress() noexcept;

    /// Returns the stream on which steps are enqueued.
    [[nodiscard]] StreamRef stream() const noexcept { return stream_; }

  private:
    struct Progress {
        detail::OptimizerProgress value;
    };

    void fetch_progress();
    void send_progress();

    std::size_t states_;
    StreamRef stream_;
    Progress host_progress_;
    DeviceBuffer<Progress> progress_;
    std::vector<std::vector<DeviceBuffer<float>>> state_;
    std::vector<detail::OptimizerTensor> tensors_;
};

}  // namespace cuda

/// SGD<float> on a GPU, with the same formula.
class FusedSGD : public cuda::FusedOptimizer {
  public:
    /// Throws ArgumentError for nesterov and dampening, and as SGD does.
    explicit FusedSGD(SGDOptions options, StreamRef stream = {});

    /// Enqueues a step of all parameters on the stream. Must always be called with the same parameters.
    void step(std::span<const ParameterRef> parameters);

  private:
    SGDOptions options_;
};

/// Adam<float> on a GPU, with the same formula.
class FusedAdam : public cuda::FusedOptimizer {
  public:
    /// Throws ArgumentError as Adam does.
    explicit FusedAdam(AdamOptions options = {}, StreamRef stream = {})
        : FusedAdam(options, false, dptk::Adam<float>(options).lr(), stream) {}

    /// Enqueues a step of all parameters on the stream. Must always be called with the same parameters.
    void step(std::span<const ParameterRef> parameters);

  protected:
    /// Makes an AdamW if `is_decoupled`.
    FusedAdam(const AdamOptions& options, bool is_decoupled, double lr, StreamRef stream);

  private:
    cuda::detail::AdamStep options_;
};

/// AdamW<float> on a GPU, with the same formula.
class FusedAdamW : public FusedAdam {
  public:
    /// Throws ArgumentError as AdamW does.
    explicit FusedAdamW(AdamOptions options = {.weight_decay = 0.01}, StreamRef stream = {})
        : FusedAdam(options, true, dptk::AdamW<float>(options).lr(), stream) {}
};

}  // namespace DPTK_NAMESPACE

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/optim/cuda/fused_optimizers.ipp"
#endif
