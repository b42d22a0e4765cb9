/// Gradient accumulation in host memory: sums the gradients of micro-batches, weighted by their samples,
/// until the step that sends them.
#pragma once

#include <cstddef>
#include <cstring>
#include <memory>
#include <vector>

#include "dptk/comm/algorithms/exchange.hpp"
#include "dptk/core/config.hpp"
#include "dptk/ddp/parameter_ref.hpp"

namespace DPTK_NAMESPACE::detail {

/// Sums are in f32, or in f64 for f64 gradients.
class GradientAccumulator {
  public:
    /// Multiplies the gradients, which are means over `samples` samples, by `samples`, adds the products to
    /// the sums, and sets the gradients to zero. If `samples` is 0, only sets the gradients to zero,
    /// whatever they contain. takes(i) returns whether parameter i takes part.
    template <class Takes>
    void add(const std::vector<ParameterRef>& parameters, std::size_t samples, Takes&& takes) {
        if (sums_.empty()) sums_.resize(parameters.size());
        for (std::size_t i = 0; i < parameters.size(); ++i) {
            const ParameterRef& parameter = parameters[i];
            if (parameter.count == 0 || !takes(i)) continue;
            if (samples > 0) add_to(i, parameter, static_cast<double>(samples));
            std::memset(parameter.gradient, 0, parameter.count * dtype_size(parameter.dtype));
        }
    }

    /// Computes to = sum * sum_factor + gradient * factor, rounded once. If `factor` is 0, the gradient is
    /// not read.
    void blend(const Buffer& to, std::size_t i, double sum_factor, const void* gradient, double factor) const;

    /// Resets the sums to zero, and keeps their memory.
    void clear();

  private:
    void add_to(std::size_t i, const ParameterRef& parameter, double samples);

    std::vector<std::unique_ptr<algorithms::Scratch>> sums_;
};

}  // namespace DPTK_NAMESPACE::detail

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/ddp/detail/gradient_accumulator.ipp"
#endif
