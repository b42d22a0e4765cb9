/// Flatten: nothing to do between convolutions and a Linear, which takes blocked images as they are;
/// elsewhere images are brought into row-major order, which they mostly have already, and seen as [n,
/// features].
#pragma once

#include <optional>
#include <string>

#include "dptk/nn/cpu/layer.hpp"
#include "dptk/nn/cpu/memory.hpp"
#include "dptk/nn/cpu/onednn.hpp"
#include "dptk/nn/cpu/reorder.hpp"

namespace dptk::nn::cpu {

/// The layout of `features` numbers per sample, row-major.
[[nodiscard]] inline Layout flat_layout(const Layout& input) {
    const Dims dims = dims_of(input);
    dnnl::memory::dim features = 1;
    for (std::size_t i = 1; i < dims.size(); ++i) features *= dims[i];
    return row_major_layout({dims[0], features});
}

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

    Plan make_plan(const Layout& input) {
        const Layout images = row_major_layout(dims_of(input));
        Plan plan;
        plan.to_rows = Converter(context(), input, images);
        plan.output = unbound(context(), flat_layout(images));
        plan.input_gradient = unbound(context(), images);
        return plan;
    }

    /// The same elements, with the dimensions of `memory`.
    static Activation seen_as(const dnnl::memory& memory, const Activation& rows) {
        rebind_memory(memory, rows.memory.get_data_handle());
        return {.memory = memory, .overwritable = rows.overwritable};
    }

    Activation do_forward(const Activation& input) override {
        Plan& plan = plans_.select(input, [&](const Layout& layout) { return make_plan(layout); });
        return seen_as(plan.output, plan.to_rows(input));
    }

    Activation do_backward_input(const Activation& output_gradient) override {
        Plan& plan = plans_.current();
        if (!plan.to_flat) plan.to_flat.emplace(context(), output_gradient.layout(), plan.output.get_desc());
        return seen_as(plan.input_gradient, (*plan.to_flat)(output_gradient));
    }

    Layout nominal_;
    Plans<Plan> plans_;
};

}  // namespace dptk::nn::cpu
