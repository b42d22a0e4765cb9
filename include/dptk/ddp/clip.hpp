/// Gradient clipping by norm or by value, for averaged gradients in host memory. Averages are equal on all
/// ranks, so that clipping does not communicate. DistributedDataParallel has members that clip its own
/// averages, in host or device memory, and ShardedOptimizer has members that clip each rank's part of the
/// averages.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "dptk/comm/algorithms/local_reduce.hpp"
#include "dptk/core/config.hpp"
#include "dptk/core/detail/device_lane.hpp"
#include "dptk/core/parameter_ref.hpp"
#include "dptk/ddp/detail/tied_parameters.hpp"

namespace DPTK_NAMESPACE {

namespace detail {

/// Calls action(element, store) for each gradient element, converted to double; store(value) replaces the
/// element. Visits the gradient of tied parameters once.
template <class Action>
void for_each_gradient(const std::vector<ParameterRef>& parameters, Action&& action) {
    require_host_memory(parameters, "clipping and scaling");
    const TiedParameters tied(parameters);
    for (std::size_t p = 0; p < parameters.size(); ++p) {
        if (tied.is_repeated(p)) continue;
        const ParameterRef& parameter = parameters[p];
        visit_dtype(parameter.gradient_buffer().dtype, [&](auto zero) {
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

/// Returns the factor, at most 1, that clips gradients of norm `norm` to `max_norm`, as PyTorch computes
/// it. Returns NaN if the norm is infinite or NaN, so that training does not silently continue with such
/// gradients.
[[nodiscard]] double clip_factor(double norm, double max_norm) noexcept;

/// Divides the gradients by `scale`. Returns whether all were finite.
[[nodiscard]] bool unscale(const std::vector<ParameterRef>& parameters, double scale);

/// Returns the larger of two values. NaN counts as larger than every number.
[[nodiscard]] double larger(double a, double b) noexcept;

void check_norm_type(double norm_type);

}  // namespace detail

/// The norm of gradients before they were clipped.
class GradientNorm {
  public:
    /// Holds a norm that is already known.
    explicit GradientNorm(double norm) : norm_(norm) {}

    /// Holds a norm that is still being computed: an f64 in device memory.
    GradientNorm(std::shared_ptr<detail::DeviceLane> lane, detail::OwnedBuffer norm);

    /// Returns the norm. If the gradients are in device memory, blocks until the norm is computed, and must
    /// be called before the gradients are clipped again, which overwrites the norm. Throws ArgumentError
    /// while a step is captured into a CUDA graph.
    [[nodiscard]] double value() const;

  private:
    double norm_ = 0;
    std::shared_ptr<detail::DeviceLane> lane_;
    detail::OwnedBuffer on_device_;
};

/// Scales all gradients so that their total norm is at most `max_norm`. Returns the norm before scaling.
/// `norm_type` is the p of the p-norm, at least 1; infinity selects the largest absolute value. Equals
/// torch.nn.utils.clip_grad_norm_, except that all gradients become NaN if the norm is infinite or NaN.
/// Throws ArgumentError if `norm_type` is below 1.
double clip_grad_norm(const std::vector<ParameterRef>& parameters, double max_norm, double norm_type = 2);

/// Clamps each gradient element to [-limit, limit], as torch.nn.utils.clip_grad_value_ does.
void clip_grad_value(const std::vector<ParameterRef>& parameters, double limit);

}  // namespace DPTK_NAMESPACE

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/ddp/clip.ipp"
#endif
