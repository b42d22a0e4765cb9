/// Flatten: nothing to do between convolutions and a Linear, which takes blocked images as they are;
/// elsewhere images are brought into row-major order, which they mostly have already, and seen as [n,
/// features].
#pragma once

#include <map>
#include <string>

#include "dptk/nn/cpu/layer.hpp"
#include "dptk/nn/cpu/memory.hpp"
#include "dptk/nn/cpu/onednn.hpp"

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
    Activation do_forward(const Activation& input) override {
        const Layout row_major = row_major_layout(dims_of(input.layout()));
        images_ = row_major;
        const bool copied = input.layout() != row_major;
        const dnnl::memory& memory = to_rows_(context(), input.memory, row_major);
        return {.memory = seen_as(flat_layout(row_major), memory),
                .overwritable = copied || input.overwritable};
    }

    Activation do_backward_input(const Activation& output_gradient) override {
        const Layout flat = flat_layout(images_);
        const bool copied = output_gradient.layout() != flat;
        const dnnl::memory& memory = to_flat_(context(), output_gradient.memory, flat);
        return {.memory = seen_as(images_, memory), .overwritable = copied || output_gradient.overwritable};
    }

    [[nodiscard]] dnnl::memory seen_as(const Layout& layout, const dnnl::memory& memory) const {
        return {layout, context().engine, memory.get_data_handle()};
    }

    Layout nominal_;
    Layout images_;
    Converter to_rows_;
    Converter to_flat_;
};

}  // namespace dptk::nn::cpu
