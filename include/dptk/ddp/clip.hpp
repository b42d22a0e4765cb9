/// Clipping of averaged gradients, which are the same on all ranks: nothing communicates. Those in host
/// memory here; DistributedDataParallel clips its own wherever they are, and ShardedOptimizer its parts of
/// them.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "dptk/comm/algorithms/local_reduce.hpp"
#include "dptk/core/config.hpp"
#include "dptk/core/detail/device_lane.hpp"
#include "dptk/ddp/parameter_ref.hpp"

namespace DPTK_NAMESPACE {

namespace detail {

/// action(element, store): store(value) replaces the element. In double.
template <class Action>
void for_each_gradient(const std::vector<ParameterRef>& parameters, Action&& action) {
    require_host_memory(parameters, "clipping and scaling");
    for (const ParameterRef& parameter : parameters) {
        visit_dtype(parameter.dtype, [&](auto zero) {
            using T = decltype(zero);
            if constexpr (Real<T>) {
                for (std::size_t i = 0; i < parameter.count; ++i) {
                    const auto element =
                        static_cast<typename Arithmetic<T>::type>(load<T>(parameter.gradient, i));
                    action(static_cast<double>(element), [&](double value) {
                        store<T>(parameter.gradient, i,
                                 static_cast<T>(static_cast<typename Arithmetic<T>::type>(value)));
                    });
                }
            }
        });
    }
}

/// What gradients of that norm are multiplied with, at most 1. PyTorch's; not a number where the norm is none
/// or infinite, so that nobody goes on with what is left of such gradients.
[[nodiscard]] double clip_factor(double norm, double max_norm) noexcept;

/// Divides the gradients by the scale. Returns whether all were finite.
[[nodiscard]] bool unscale(const std::vector<ParameterRef>& parameters, double scale);

/// Of two sizes; what is not a number is larger than all that are.
[[nodiscard]] double larger(double a, double b) noexcept;

void check_norm_type(double norm_type);

}  // namespace detail

/// The norm of gradients as it was before they were clipped.
class GradientNorm {
  public:
    /// One that is known.
    explicit GradientNorm(double norm) : norm_(norm) {}

    /// An f64 that is to come in device memory.
    GradientNorm(std::shared_ptr<detail::DeviceLane> lane, detail::OwnedBuffer norm);

    /// Of gradients in device memory: blocks until it is known. Ask before they are clipped again. Throws
    /// ArgumentError while a step is captured.
    [[nodiscard]] double value() const;

  private:
    double norm_ = 0;
    std::shared_ptr<detail::DeviceLane> lane_;
    detail::OwnedBuffer on_device_;
};

/// Where the norm of all gradients together is above `max_norm`, multiplies them so that it comes to that.
/// Returns the norm before. `norm_type` is 1 or more; infinity takes the largest absolute value. As
/// torch.nn.utils.clip_grad_norm_; where the norm is infinite or not a number, all gradients are not a number
/// then. Throws ArgumentError for a norm_type below 1.
double clip_grad_norm(const std::vector<ParameterRef>& parameters, double max_norm, double norm_type = 2);

/// Moves each gradient into [-limit, limit]. As torch.nn.utils.clip_grad_value_.
void clip_grad_value(const std::vector<ParameterRef>& parameters, double limit);

}  // namespace DPTK_NAMESPACE

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/ddp/clip.ipp"
#endif
