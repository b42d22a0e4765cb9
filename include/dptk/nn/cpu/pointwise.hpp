/// Pointwise operations with oneDNN's eltwise primitives, and ReLUs that are fused with the operation before
/// them.
#pragma once

#include <optional>

#include "dptk/core/config.hpp"
#include "dptk/nn/cpu/layer.hpp"
#include "dptk/nn/cpu/onednn.hpp"
#include "dptk/nn/operations.hpp"

namespace DPTK_NAMESPACE::nn::cpu {

/// Returns oneDNN's function for a pointwise operation; nullopt if it has none, or for other operations.
[[nodiscard]] std::optional<PointwiseAlgorithm> pointwise_algorithm(const Operation& operation);

class PointwiseLayer final : public Layer {
  public:
    /// `has_backward` is false for a ReLU that is fused with an operation that also computes its gradient.
    PointwiseLayer(const Context& context, const Request& request, bool has_backward);

    [[nodiscard]] Layout nominal_output() const override { return nominal_; }

  private:
    DPTK_INLINE PlanPointer do_plan(std::size_t batch, std::span<const Layout> inputs) override;

    bool has_backward_;
    Layout nominal_;
};

}  // namespace DPTK_NAMESPACE::nn::cpu

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/nn/cpu/pointwise.ipp"
#endif
