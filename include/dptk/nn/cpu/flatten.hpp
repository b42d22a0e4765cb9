/// Flatten: nothing to do between convolutions and a Linear, which takes blocked images as they are;
/// elsewhere images are brought into row-major order, which they mostly have already, and seen as [n,
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

/// The layout of `features` numbers per sample, row-major.
[[nodiscard]] Layout flat_layout(const Layout& input);

/// Passes its input on as it is: the next layers know images.
class PassingFlattenLayer final : public Layer {
  public:
    PassingFlattenLayer(const Context& context, const std::string& label, const Layout& nominal_input)
        : Layer(context, label), nominal_(nominal_input) {}

    [[nodiscard]] Layout nominal_output() const override { return nominal_; }

  private:
    Activation do_forward(const Activation& input) override { return input; }

    Activation do_backward_input(const Activation& output_gradient) override { return output_gradient; }

    Layout nominal_;
};

/// Gives its input other dimensions.
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

    /// The same elements, with the dimensions of `memory`.
    static Activation seen_as(const dnnl::memory& memory, const Activation& rows);

    DPTK_INLINE Activation do_forward(const Activation& input) override;

    DPTK_INLINE Activation do_backward_input(const Activation& output_gradient) override;

    Layout nominal_;
    Plans<Plan> plans_;
};

}  // namespace DPTK_NAMESPACE::nn::cpu

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/nn/cpu/flatten.ipp"
#endif
