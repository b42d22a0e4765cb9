#pragma once

#include "dptk/nn/cpu/flatten.hpp"

namespace DPTK_NAMESPACE::nn::cpu {

/// Returns the row-major layout [n, features] of the samples of `input`.
[[nodiscard]] DPTK_INLINE Layout flat_layout(const Layout& input) {
    const Dims dims = dims_of(input);
    dnnl::memory::dim features = 1;
    for (std::size_t i = 1; i < dims.size(); ++i) features *= dims[i];
    return row_major_layout({dims[0], features});
}

class FlattenPlan final : public Plan {
  public:
    FlattenPlan(FlattenLayer& layer, const Layout& input, bool passes_images)
        : Plan(layer),
          passes_images_(passes_images),
          images_(unbound(context(), row_major_layout(dims_of(input)))) {
        output = passes_images_ ? input : flat_layout(input);
        use.is_view = passes_images_ || input == images_.get_desc();
        if (!use.is_view) forward_ = reorder(context(), unbound(context(), input), images_);
    }

  private:
    std::vector<Layout> do_plan_backward(const Layout& output_gradient) override {
        use.passes_gradient = passes_images_ || output_gradient == output;
        if (passes_images_) return {output_gradient};
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

    bool passes_images_;
    dnnl::memory images_;
    dnnl::memory flat_;
    Primitive forward_;
    Primitive backward_;
};

DPTK_INLINE FlattenLayer::FlattenLayer(const Context& context, const Request& request)
    : Layer(context, request.info),
      passes_images_(info().feeds_only_linear &&
                     request.inputs[0] != row_major_layout(dims_of(request.inputs[0]))),
      nominal_(passes_images_ ? request.inputs[0] : flat_layout(request.inputs[0])) {}

DPTK_INLINE PlanPointer FlattenLayer::do_plan(std::size_t /*batch*/, std::span<const Layout> inputs) {
    return std::make_unique<FlattenPlan>(*this, inputs[0], passes_images_);
}

}  // namespace DPTK_NAMESPACE::nn::cpu
