/// Flatten on oneDNN. Before a Linear it does nothing, since Linear accepts blocked images. Elsewhere it
/// converts images to row-major order, which most already have, and views them as [n, features].
#pragma once

#include "dptk/core/config.hpp"
#include "dptk/nn/cpu/layer.hpp"
#include "dptk/nn/cpu/onednn.hpp"

namespace DPTK_NAMESPACE::nn::cpu {

class FlattenLayer final : public Layer {
  public:
    FlattenLayer(const Context& context, const Request& request);

    [[nodiscard]] Layout nominal_output() const override { return nominal_; }

  private:
    DPTK_INLINE PlanPointer do_plan(std::size_t batch, std::span<const Layout> inputs) override;

    bool passes_images_;  // whether the output is the input as it is
    Layout nominal_;
};

}  // namespace DPTK_NAMESPACE::nn::cpu

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/nn/cpu/flatten.ipp"
#endif
