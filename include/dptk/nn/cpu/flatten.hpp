/// Flatten on oneDNN. Before a Linear it does nothing, since Linear accepts blocked images. Elsewhere it
/// converts images to row-major order, which most already have, and views them as [n, features].
#pragma once

#include <vector>

#include "dptk/core/config.hpp"
#include "dptk/nn/cpu/layer.hpp"

namespace DPTK_NAMESPACE::nn::cpu {

/// Returns the row-major layout [n, features] of the samples of `input`.
[[nodiscard]] inline Layout flat_layout(const Layout& input) {
    const Dims dims = dims_of(input);
    dnnl::memory::dim features = 1;
    for (std::size_t i = 1; i < dims.size(); ++i) features *= dims[i];
    return row_major_layout({dims[0], features});
}

class FlattenPlan final : public Plan {
  public:
    FlattenPlan(Layer& layer, const Layout& input)
        : Plan(layer), images_(unbound(context(), row_major_layout(dims_of(input)))) {
        output = layer.passes_images() ? input : flat_layout(input);
        use.is_view = layer.passes_images() || input == images_.get_desc();
        if (!use.is_view) forward_ = reorder(context(), unbound(context(), input), images_);
    }

  private:
    std::vector<Layout> do_plan_backward(const Layout& output_gradient) override {
        use.passes_gradient = layer().passes_images() || output_gradient == output;
        if (layer().passes_images()) return {output_gradient};
        if (!use.passes_gradient)
            backward_ =
                reorder(context(), unbound(context(), output_gradient), flat_ = unbound(context(), output));
        return {images_.get_desc()};
    }

    void do_forward(const Arguments& arguments, const Pass& /*pass*/) override {
        if (use.is_view) return;
        rebind_memory(images_, arguments.output.get_data_handle());
        forward_.set(DNNL_ARG_FROM, arguments.inputs[0]).run();
    }

    void do_backward_inputs(const Arguments& arguments, const Pass& /*pass*/) override {
        if (use.passes_gradient) return;
        rebind_memory(flat_, arguments.input_gradients[0].get_data_handle());
        backward_.set(DNNL_ARG_FROM, arguments.output_gradient).run();
    }

    dnnl::memory images_;
    dnnl::memory flat_;
    Primitive forward_;
    Primitive backward_;
};

}  // namespace DPTK_NAMESPACE::nn::cpu
