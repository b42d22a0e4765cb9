/// Add with oneDNN's binary primitive, perhaps together with a ReLU.
#pragma once

#include "dptk/core/config.hpp"
#include "dptk/nn/cpu/layer.hpp"
#include "dptk/nn/cpu/onednn.hpp"

namespace DPTK_NAMESPACE::nn::cpu {

class AddLayer final : public Layer {
  public:
    AddLayer(const Context& context, const Request& request);

    [[nodiscard]] Layout nominal_output() const override { return nominal_; }

  private:
    DPTK_INLINE PlanPointer do_plan(std::size_t batch, std::span<const Layout> inputs) override;

    Layout nominal_;
};

}  // namespace DPTK_NAMESPACE::nn::cpu

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/nn/cpu/add.ipp"
#endif
