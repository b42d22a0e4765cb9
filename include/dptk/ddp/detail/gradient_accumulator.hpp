/// Gradient accumulation in host memory: sums the gradients of micro-batches, with their weights, until the
/// step that sends them.
#pragma once

#include <cstddef>
#include <cstring>
#include <memory>
#include <vector>

#include "dptk/comm/algorithms/exchange.hpp"
#include "dptk/core/config.hpp"
#include "dptk/core/parameter_ref.hpp"

namespace DPTK_NAMESPACE::detail {

/// Sums are in f32, or in f64 for f64 gradients.
class GradientAccumulator {
  public:
    /// Adds the gradients multiplied by `weight`, and sets them to zero. Gradients of weight 0 are not
    /// added, whatever they contain. takes(i) returns whether parameter i takes part.
    template <class Takes>
    void add(const std::vector<ParameterRef>& parameters, double weight, Takes&& takes) {
        if (sums_.empty()) sums_.resize(parameters.size());
        for (std::size_t i = 0; i < parameters.size(); ++i) {
            const ParameterRef& parameter = parameters[i];
            if (parameter.count == 0 || !takes(i)) continue;
            if (weight > 0) add_to(i, parameter, weight);
            std::memset(parameter.gradient, 0, parameter.gradient_buffer().bytes());
        }
    }

    /// Computes to = sum * sum_factor + gradient * factor, rounded once. If `factor` is 0, the gradient is
    /// not read.
    void blend(const Buffer& to, std::size_t i, double sum_factor, const Buffer& gradient,
               double factor) const;

    /// Resets the sums to zero, and keeps their memory.
    void clear();

  private:
    void add_to(std::size_t i, const ParameterRef& parameter, double weight);

    std::vector<std::unique_ptr<algorithms::Scratch>> sums_;
};

}  // namespace DPTK_NAMESPACE::detail

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/ddp/detail/gradient_accumulator.ipp"
#endif
