/// BatchNorm2d with oneDNN's batch normalization, over the batch of one rank, perhaps together with a ReLU.
#pragma once

#include "dptk/core/config.hpp"
#include "dptk/nn/cpu/layer.hpp"
#include "dptk/nn/cpu/onednn.hpp"
#include "dptk/nn/host_call.hpp"
#include "dptk/nn/operations.hpp"

namespace DPTK_NAMESPACE::nn::cpu {

class BatchNormLayer final : public Layer {
  public:
    BatchNormLayer(const Context& context, const Request& request);

    std::vector<Parameter*> parameters() override { return {&weight_, &bias_}; }

    [[nodiscard]] Layout nominal_output() const override { return nominal_; }

    [[nodiscard]] const BatchNorm2d& norm() const { return std::get<BatchNorm2d>(info().operation); }

    [[nodiscard]] const Parameter& weight() const noexcept { return weight_; }

    [[nodiscard]] const Parameter& bias() const noexcept { return bias_; }

    [[nodiscard]] RunningStatistics<float>& statistics() const noexcept { return statistics_; }

  private:
    DPTK_INLINE PlanPointer do_plan(std::size_t batch, std::span<const Layout> inputs) override;

    RunningStatistics<float>& statistics_;
    Parameter weight_;
    Parameter bias_;
    Layout nominal_;
};

}  // namespace DPTK_NAMESPACE::nn::cpu

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/nn/cpu/batch_norm.ipp"
#endif
