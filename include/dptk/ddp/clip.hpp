/// Gradient clipping by norm or by value, for averaged gradients in host memory. Averages are equal on all
/// ranks, so that clipping does not communicate. DistributedDataParallel has members that clip its own
/// averages, in host or device memory, and ShardedOptimizer has members that clip each rank's part of the
/// averages.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "dptk/comm/algorithms/local_reduce.hpp"
#include "dptk/core/buffer.hpp"
#include "dptk/core/config.hpp"
#include "dptk/core/detail/device_lane.hpp"
#include "dptk/core/parameter_ref.hpp"

namespace DPTK_NAMESPACE {

namespace detail {

/// Calls action(element, store) for each element of gradients in host memory, converted to double;
/// store(value) replaces the element.
template <class Action>
void for_each_element(std::span<const Buffer> gradients, Action&& action) {
    for (const Buffer& gradient : gradients) {
        visit_dtype(gradient.dtype, [&](auto zero) {
            using T = decltype(zero);
            if constexpr (Real<T>) {
                for (std::size_t i = 0; i < gradient.count; ++i) {
                    const auto element = static_cast<typename Arithmetic<T>::type>(load<T>(gradient.data, i));
                    action(static_cast<double>(element), [&](double value) {
                        store<T>(gradient.data, i,
                                 static_cast<T>(static_cast<typename Arithmetic<T>::type>(value)));
                    });
                }
            }
        });
    }
}

/// Returns the gradients of the parameters, that of tied parameters once. Throws ArgumentError if one is not
/// in host memory.
[[nodiscard]] std::vector<Buffer> gradients_of(const std::vector<ParameterRef>& parameters);

/// The functions below do what the public ones do, to gradients in host memory.
double clip_norm(std::span<const Buffer> gradients, double max_norm, double norm_type);
void clip_value(std::span<const Buffer> gradients, double limit);

/// Returns the factor, at most 1, that clips gradients of norm `norm` to `max_norm`, as PyTorch computes
/// it. Returns NaN if the norm is infinite or NaN, so that training does not silently continue with such
/// gradients.
[[nodiscard]] double clip_factor(double norm, double max_norm) noexcept;

/// Divides the gradients by `scale`. Returns whether all were finite.
[[nodiscard]] bool unscale(std::span<const Buffer> gradients, double scale);

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
