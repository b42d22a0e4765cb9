/// The common part of the operations that dptk computes as matrix products, where oneDNN's own primitives are
/// slow: a weight in the layout of the products, perhaps a bias, and perhaps a ReLU that follows.
#pragma once

#include <algorithm>
#include <span>

#include "dptk/core/config.hpp"
#include "dptk/nn/cpu/layer.hpp"

namespace DPTK_NAMESPACE::nn::cpu {

class ProductPlan : public Plan {
  public:
    using Plan::Plan;

  protected:
    [[nodiscard]] static std::span<float> floats(const dnnl::memory& memory) {
        return {static_cast<float*>(memory.get_data_handle()), floats_in(memory.get_desc())};
    }

    [[nodiscard]] const float* weight() const { return floats(layer().weight().value_memory()).data(); }

    [[nodiscard]] float* weight_gradient() const { return floats(layer().weight().gradient_memory()).data(); }

    /// Adds the bias to each row, and applies a ReLU that follows.
    void finish_rows(std::span<float> rows) const {
        if (layer().has_bias()) {
            const std::span<const float> bias = floats(layer().bias().value_memory());
            for (auto element = rows.begin(); element != rows.end();)
                for (const float addend : bias) *element++ += addend;
        }
        if (info().relu != FusedReLU::follows) return;
        for (float& element : rows) element = std::max(element, 0.0F);
    }

    /// Writes the gradient of the bias, if there is one: the sum of the rows.
    void sum_rows(std::span<const float> rows) const {
        if (!layer().has_bias()) return;
        const std::span<float> sums = floats(layer().bias().gradient_memory());
        std::fill(sums.begin(), sums.end(), 0.0F);
        for (auto element = rows.begin(); element != rows.end();)
            for (float& sum : sums) sum += *element++;
    }
};

}  // namespace DPTK_NAMESPACE::nn::cpu
