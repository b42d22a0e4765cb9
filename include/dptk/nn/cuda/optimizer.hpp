/// Optimizers that step all parameters of a network on a GPU in one pass.
#pragma once

#include <cstddef>
#include <span>
#include <utility>
#include <vector>

#include "dptk/core/cuda/copy.hpp"
#include "dptk/core/cuda/memory.hpp"
#include "dptk/core/text.hpp"
#include "dptk/ddp/parameter_ref.hpp"
#include "dptk/nn/cuda/kernels.hpp"
#include "dptk/optim/adam.hpp"
#include "dptk/optim/sgd.hpp"

namespace dptk::nn {

namespace cuda {

/// The states and the clock of an optimizer, in device memory.
class FusedOptimizer {
  public:
    /// `states`: how many numbers it remembers of each element.
    FusedOptimizer(double lr, std::size_t states, StreamRef stream)
        : states_(states), stream_(stream), clock_(1) {
        host_clock_.value.lr = lr;
        send_clock();
    }

    /// From the next step on, also in a graph that was captured. Blocks until the device has it.
    void set_lr(double lr) {
        dptk::detail::require_not_negative("FusedOptimizer", "lr", lr);
        dptk::cuda::detail::copy_bytes(&host_clock_, clock_.data(), sizeof host_clock_, stream_);
        dptk::cuda::synchronize(stream_);
        host_clock_.value.lr = lr;
        send_clock();
    }

  protected:
    [[nodiscard]] std::span<const kernels::OptimizerTensor> tensors(
        std::span<const ParameterRef> parameters) {
        if (state_.empty()) {
            for (const ParameterRef& parameter : parameters) {
                std::vector<dptk::cuda::DeviceBuffer<float>>& own = state_.emplace_back();
                for (std::size_t s = 0; s < states_; ++s) {
                    own.emplace_back(parameter.count);
                    dptk::cuda::check(
                        cudaMemsetAsync(own.back().data(), 0, parameter.count * sizeof(float), stream_.get()),
                        "cudaMemsetAsync");
                }
            }
        }
        if (state_.size() != parameters.size())
            throw ArgumentError(dptk::detail::text("an optimizer of ", state_.size(), " parameters steps ",
                                                   parameters.size()));
        tensors_.clear();
        for (std::size_t i = 0; i < parameters.size(); ++i) {
            const ParameterRef& parameter = parameters[i];
            if (parameter.dtype != DType::f32 || parameter.device.type != DeviceType::cuda)
                throw ArgumentError(
                    dptk::detail::text("parameter ", parameter.name, ": not f32 in a device's memory"));
            tensors_.push_back({.value = static_cast<float*>(parameter.value),
                                .gradient = static_cast<const float*>(parameter.gradient),
                                .first = states_ > 0 ? state_[i][0].data() : nullptr,
                                .second = states_ > 1 ? state_[i][1].data() : nullptr,
                                .count = parameter.count});
        }
        return tensors_;
    }

    [[nodiscard]] kernels::OptimizerClock* clock() noexcept { return &clock_.data()->value; }
    [[nodiscard]] StreamRef stream() const noexcept { return stream_; }

  private:
    struct Clock {
        kernels::OptimizerClock value;
    };

    void send_clock() {
        dptk::cuda::detail::copy_bytes(clock_.data(), &host_clock_, sizeof host_clock_, stream_);
        dptk::cuda::synchronize(stream_);
    }

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
    explicit FusedSGD(SgdOptions options, StreamRef stream = {})
        : FusedOptimizer(dptk::SGD<float>(options).lr(), options.momentum == 0 ? 0 : 1, stream),
          options_(options) {}

    /// Puts a step of all parameters, always the same ones, on the stream.
    void step(std::span<const ParameterRef> parameters) {
        cuda::kernels::sgd_step(
            tensors(parameters),
            {static_cast<float>(options_.momentum), static_cast<float>(options_.weight_decay)}, clock(),
            stream());
    }

  private:
    SgdOptions options_;
};

/// Adam<float> on a GPU, with the same formula.
class FusedAdam : public cuda::FusedOptimizer {
  public:
    explicit FusedAdam(AdamOptions options = {}, StreamRef stream = {})
        : FusedAdam(options, false, dptk::Adam<float>(options).lr(), stream) {}

    /// Puts a step of all parameters, always the same ones, on the stream.
    void step(std::span<const ParameterRef> parameters) {
        cuda::kernels::adam_step(tensors(parameters), options_, clock(), stream());
    }

  protected:
    FusedAdam(const AdamOptions& options, bool is_decoupled, double lr, StreamRef stream)
        : FusedOptimizer(lr, 2, stream),
          options_{options.beta1, options.beta2, options.eps, options.weight_decay, is_decoupled} {}

  private:
    cuda::kernels::AdamStep options_;
};

/// AdamW<float> on a GPU, with the same formula.
class FusedAdamW : public FusedAdam {
  public:
    explicit FusedAdamW(AdamOptions options = {.weight_decay = 0.01}, StreamRef stream = {})
        : FusedAdam(options, true, dptk::AdamW<float>(options).lr(), stream) {}
};

}  // namespace dptk::nn
