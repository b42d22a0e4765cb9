/// Flatten on oneDNN. Between a convolution and a Linear it does nothing, since Linear accepts blocked
/// images. Elsewhere it converts images to row-major order, which most already have, and views them as [n,
/// features].
#pragma once

#include <optional>
#include <string>

#include "dptk/core/config.hpp"
#include "dptk/nn/cpu/layer.hpp"
#include "dptk/nn/cpu/memory.hpp"
#include "dptk/nn/cpu/onednn.hpp"
#include "dptk/nn/cpu/reorder.hpp"

namespace DPTK_NAMESPACE::nn::cpu {

/// Returns the row-major layout [n, features] of the samples of `input`.
[[nodiscard]] Layout flat_layout(const Layout& input);

/// Passes its input through: the following layers accept images.
class IdentityFlattenLayer final : public Layer {
  public:
    IdentityFlattenLayer(const Context& context, const std::string& label, const Layout& nominal_input)
        : Layer(context, label), nominal_(nominal_input) {}

    [[nodiscard]] Layout nominal_output() const override { return nominal_; }

  private:
    Activation do_forward(const Activation& input) override { return input; }

    Activation do_backward_input(const Activation& output_gradient) override { return output_gradient; }

    Layout nominal_;
};

/// Reshapes its input to [n, features].
class FlattenLayer final : public Layer {
  public:
    FlattenLayer(const Context& context, const std::string& label, const Layout& nominal_input)
        : Layer(context, label), nominal_(flat_layout(nominal_input)) {}

    [[nodiscard]] Layout nominal_output() const override { return nominal_; }

  private:
    struct Plan {
        Converter to_rows;
        dnnl::memory output;
        std::optional<Converter> to_flat;
        dnnl::memory input_gradient;
    };

    Plan make_plan(const Layout& input);

    /// Returns an activation with the elements of `rows` and the dimensions of `memory`.
    static Activation reshape(const dnnl::memory& memory, const Activation& rows);

    DPTK_INLINE Activation do_forward(const Activation& input) override;

    DPTK_INLINE Activation do_backward_input(const Activation& output_gradient) override;

    Layout nominal_;
    Plans<Plan> plans_;
};

}  // namespace DPTK_NAMESPACE::nn::cpu

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/nn/cpu/flatten.ipp"
#endif
