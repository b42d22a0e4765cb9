/// Operations that oneDNN lacks, computed by the functions of nn/reference in row-major memory. Inputs and
/// gradients are converted where they have other layouts.
#pragma once

#include <memory>
#include <vector>

#include "dptk/core/config.hpp"
#include "dptk/nn/cpu/layer.hpp"
#include "dptk/nn/cpu/onednn.hpp"
#include "dptk/nn/cpu/parameter.hpp"
#include "dptk/nn/host_call.hpp"

namespace DPTK_NAMESPACE::nn::cpu {

class HostLayer final : public Layer {
  public:
    HostLayer(const Context& context, const Request& request);

    DPTK_INLINE std::vector<Parameter*> parameters() override;

    [[nodiscard]] Layout nominal_output() const override { return nominal_; }

  private:
    DPTK_INLINE PlanPointer do_plan(std::size_t batch, std::span<const Layout> inputs) override;

    RunningStatistics<float>* statistics_;
    std::vector<std::unique_ptr<Parameter>> parameters_;
    Layout nominal_;
};

}  // namespace DPTK_NAMESPACE::nn::cpu

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/nn/cpu/host_layer.ipp"
#endif
