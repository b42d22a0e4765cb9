#pragma once

#include "dptk/nn/cuda/convolution.hpp"

#include <span>
#include <utility>

#include "dptk/nn/cuda/kernels.hpp"

namespace DPTK_NAMESPACE::nn::cuda {

DPTK_INLINE Conv2dLayer::Conv2dLayer(Context& context, std::string label, const Conv2d& spec,
                                     const Form& input, Activate activate, Generator& generator)
    : Layer(context, std::move(label), output_of(context, spec, input)),
      spec_(spec),
      input_(input),
      activate_(activate),
      weight_(context, "weight", {spec.out_channels, input.channels, spec.kernel_size, spec.kernel_size},
              {.outputs = spec.out_channels,
               .padded_outputs = output_form().padded,
               .channels = input.channels,
               .padded_channels = input.padded,
               .positions = spec.kernel_size * spec.kernel_size},
              fan_in(), generator),
      bias_(context, "bias", {spec.out_channels},
            {.outputs = spec.out_channels, .padded_outputs = output_form().padded}, fan_in(), generator) {}

DPTK_INLINE Form Conv2dLayer::output_of(const Context& context, const Conv2d& spec, const Form& input) {
    const Shape out = nn::output_shape(spec, {input.channels, input.height, input.width});
    return {out[0], context.padded_channels(out[0]), out[1], out[2]};
}

DPTK_INLINE std::size_t Conv2dLayer::fan_in() const {
    return input_.channels * spec_.kernel_size * spec_.kernel_size;
}

DPTK_INLINE Conv2dLayer::Dims Conv2dLayer::dims(std::size_t n, std::size_t channels, std::size_t height,
                                                std::size_t width) {
    return {static_cast<std::int64_t>(n), static_cast<std::int64_t>(channels),
            static_cast<std::int64_t>(height), static_cast<std::int64_t>(width)};
}

DPTK_INLINE Conv2dLayer::Dims Conv2dLayer::dims(std::size_t n, const Form& form) {
    return dims(n, form.padded, form.height, form.width);
}

DPTK_INLINE CudnnDescriptor Conv2dLayer::source_tensor(std::size_t n) const {
    return cudnn_tensor(Id::source, context().type(), dims(n, input_));
}

DPTK_INLINE CudnnDescriptor Conv2dLayer::weight_tensor(DType type) const {
    return cudnn_tensor(Id::weight, type,
                        dims(output_form().padded, input_.padded, spec_.kernel_size, spec_.kernel_size));
}

DPTK_INLINE CudnnDescriptor Conv2dLayer::output_tensor(std::size_t n) const {
    return cudnn_tensor(Id::output, context().type(), dims(n, output_form()));
}

DPTK_INLINE CudnnDescriptor Conv2dLayer::convolution() const {
    const auto both = [](std::size_t value) {
        return std::array<std::int64_t, 2>{static_cast<std::int64_t>(value),
                                           static_cast<std::int64_t>(value)};
    };
    const cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
    CudnnDescriptor made(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
    made.set(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, std::int64_t{2})
        .set(CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_DATA_FLOAT)
        .set(CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE,
             std::span<const cudnnConvolutionMode_t>(&mode, 1))
        .set(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, both(spec_.padding))
        .set(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, both(spec_.padding))
        .set(CUDNN_ATTR_CONVOLUTION_DILATIONS, both(1))
        .set(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, both(spec_.stride))
        .finalize();
    return made;
}

DPTK_INLINE CudnnDescriptor Conv2dLayer::pointwise(cudnnPointwiseMode_t mode, const CudnnDescriptor& in,
                                                   const CudnnDescriptor* second,
                                                   const CudnnDescriptor& out) {
    CudnnDescriptor what(CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
    what.set(CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE,
             std::span<const cudnnPointwiseMode_t>(&mode, 1))
        .set(CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_DATA_FLOAT)
        .finalize();
    CudnnDescriptor operation(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
    operation.set(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, what)
        .set(CUDNN_ATTR_OPERATION_POINTWISE_XDESC, in)
        .set(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, out);
    if (second != nullptr) operation.set(CUDNN_ATTR_OPERATION_POINTWISE_BDESC, *second);
    operation.finalize();
    return operation;
}

DPTK_INLINE CudnnDescriptor Conv2dLayer::forward_operation(const CudnnDescriptor& x, const CudnnDescriptor& w,
                                                           const CudnnDescriptor& y) const {
    const CudnnDescriptor how = convolution();
    CudnnDescriptor operation(CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR);
    operation.set(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC, how)
        .set(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, x)
        .set(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W, w)
        .set(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y, y)
        .set(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA, 1.0F)
        .set(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA, 0.0F)
        .finalize();
    return operation;
}

DPTK_INLINE std::vector<CudnnArgument> Conv2dLayer::forward_arguments(const Activation& input,
                                                                      const Activation& result) const {
    return {{Id::source, input.data},
            {Id::weight, const_cast<void*>(weight_.operand())},
            {Id::output, result.data}};
}

DPTK_INLINE std::vector<CudnnArgument> Conv2dLayer::fused_arguments(const Activation& input,
                                                                    const Activation& result) const {
    std::vector<CudnnArgument> arguments = forward_arguments(input, result);
    arguments.push_back({Id::bias, const_cast<void*>(bias_.operand())});
    return arguments;
}

DPTK_INLINE void Conv2dLayer::plan_forward(Plan& plan, const Activation& input, const Activation& result) {
    const Dims out = dims(input.n, output_form());
    const CudnnDescriptor x = source_tensor(input.n);
    const CudnnDescriptor w = weight_tensor(context().type());
    const CudnnDescriptor y = output_tensor(input.n);
    const CudnnDescriptor b = cudnn_tensor(Id::bias, context().type(), {1, out[1], 1, 1});
    const CudnnDescriptor after_product = cudnn_tensor(Id::convolved, DType::f32, out, true);
    const CudnnDescriptor after_bias = cudnn_tensor(Id::biased, DType::f32, out, true);
    const bool is_relu = activate_ != Activate::none;
    std::vector<CudnnDescriptor> operations;
    operations.push_back(forward_operation(x, w, after_product));
    operations.push_back(pointwise(CUDNN_POINTWISE_ADD, after_product, &b, is_relu ? after_bias : y));
    if (is_relu) operations.push_back(pointwise(CUDNN_POINTWISE_RELU_FWD, after_bias, nullptr, y));
    plan.fused = find(operations, fused_arguments(input, result));
    if (plan.fused) return;
    operations.clear();
    operations.push_back(forward_operation(x, w, y));
    plan.forward = find(operations, forward_arguments(input, result));
    if (!plan.forward) throw BackendError("cuDNN has no kernel for the forward pass");
}

DPTK_INLINE std::optional<CudnnPlan> Conv2dLayer::find(const std::vector<CudnnDescriptor>& operations,
                                                       const std::vector<CudnnArgument>& arguments) const {
    std::vector<cudnnBackendDescriptor_t> pointers;
    for (const CudnnDescriptor& operation : operations) pointers.push_back(operation.get());
    return CudnnPlan::find(context(), pointers, arguments);
}

DPTK_INLINE std::vector<CudnnArgument> Conv2dLayer::gradient_arguments(const Plan& plan,
                                                                       const Activation& gradient) {
    void* to = weight_.gradient().data();
    if (plan.narrow_gradients) to = narrow_.data();
    return {{Id::source, source_.data}, {Id::weight, to}, {Id::output, gradient.data}};
}

DPTK_INLINE std::optional<CudnnPlan> Conv2dLayer::find_gradients(const Plan& plan,
                                                                 const Activation& gradient) {
    const CudnnDescriptor how = convolution();
    const CudnnDescriptor x = source_tensor(gradient.n);
    const CudnnDescriptor dw = weight_tensor(plan.narrow_gradients ? context().type() : DType::f32);
    const CudnnDescriptor dy = output_tensor(gradient.n);
    std::vector<CudnnDescriptor> operations;
    operations.emplace_back(CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR);
    operations.back()
        .set(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC, how)
        .set(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X, x)
        .set(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW, dw)
        .set(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY, dy)
        .set(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA, 1.0F)
        .set(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA, 0.0F)
        .finalize();
    return find(operations, gradient_arguments(plan, gradient));
}

DPTK_INLINE void Conv2dLayer::plan_gradients(Plan& plan, const Activation& gradient) {
    plan.gradients = find_gradients(plan, gradient);
    if (!plan.gradients && context().type() != DType::f32) {
        plan.narrow_gradients = true;
        if (narrow_.size() == 0) narrow_ = DeviceBuffer<std::byte>(weight_.count() * context().type_size());
        plan.gradients = find_gradients(plan, gradient);
    }
    const std::size_t rows = gradient.n * output_form().pixels();
    const std::size_t bytes = rows * window_elements() * context().type_size();
    if (bytes <= most_unfolded) {
        plan.unfolded.emplace(UnfoldedGradients{MatrixProduct(context(), {.rows = output_form().padded,
                                                                          .columns = window_elements(),
                                                                          .inner = rows,
                                                                          .a = Side::transposed}),
                                                DeviceBuffer<std::byte>(bytes)});
        run_unfolded(*plan.unfolded, gradient);
    }
    if (!plan.gradients && !plan.unfolded)
        throw BackendError("cuDNN has no kernel for the gradient of the weight");
    if (!plan.gradients || !plan.unfolded) return;
    const std::size_t fastest = find_fastest(context(), 2, [&](std::size_t i) {
        if (i == 0) run_gradients(plan, gradient);
        if (i == 1) run_unfolded(*plan.unfolded, gradient);
    });
    if (fastest == 0) plan.unfolded.reset();
}

DPTK_INLINE void Conv2dLayer::run_gradients(Plan& plan, const Activation& gradient) {
    plan.gradients->run(context(), gradient_arguments(plan, gradient));
    if (plan.narrow_gradients)
        kernels::convert(narrow_.data(), context().type(), weight_.gradient().data(), DType::f32,
                         weight_.count(), context().stream());
}

DPTK_INLINE void Conv2dLayer::run_unfolded(UnfoldedGradients& unfolded, const Activation& gradient) {
    const auto number = [](std::size_t value) { return static_cast<int>(value); };
    kernels::unfold(source_.data, unfolded.rows.data(), context().type(), gradient.n, input_.padded,
                    {.height = number(input_.height),
                     .width = number(input_.width),
                     .out_height = number(output_form().height),
                     .out_width = number(output_form().width),
                     .size = number(spec_.kernel_size),
                     .stride = number(spec_.stride),
                     .padding = number(spec_.padding)},
                    context().stream());
    unfolded.product.run(gradient.data, unfolded.rows.data(), weight_.gradient().data());
}

DPTK_INLINE std::size_t Conv2dLayer::window_elements() const noexcept {
    return spec_.kernel_size * spec_.kernel_size * input_.padded;
}

DPTK_INLINE std::vector<CudnnArgument> Conv2dLayer::input_arguments(const Activation& gradient,
                                                                    const Activation& result) const {
    return {{Id::source, result.data},
            {Id::weight, const_cast<void*>(weight_.operand())},
            {Id::output, gradient.data}};
}

DPTK_INLINE void Conv2dLayer::plan_backward_input(Plan& plan, const Activation& gradient,
                                                  const Activation& result) {
    const CudnnDescriptor how = convolution();
    const CudnnDescriptor dx = source_tensor(gradient.n);
    const CudnnDescriptor w = weight_tensor(context().type());
    const CudnnDescriptor dy = output_tensor(gradient.n);
    std::vector<CudnnDescriptor> operations;
    operations.emplace_back(CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR);
    operations.back()
        .set(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC, how)
        .set(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX, dx)
        .set(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W, w)
        .set(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY, dy)
        .set(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA, 1.0F)
        .set(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA, 0.0F)
        .finalize();
    plan.backward_input = find(operations, input_arguments(gradient, result));
    if (!plan.backward_input) throw BackendError("cuDNN has no kernel for the gradient of the input");
}

DPTK_INLINE Activation Conv2dLayer::do_forward(const Activation& input) {
    Plan& plan = plans_[input.n];
    current_ = &plan;
    source_ = input;
    output_ = outputs_.get(context(), input.n, output_form());
    if (!plan.fused && !plan.forward) plan_forward(plan, input, output_);
    if (plan.fused) {
        plan.fused->run(context(), fused_arguments(input, output_));
    } else {
        plan.forward->run(context(), forward_arguments(input, output_));
        kernels::add_bias(output_.data, bias_.operand(), context().type(), input.n * output_form().pixels(),
                          output_form().padded, activate_ != Activate::none, context().stream());
    }
    return output_;
}

DPTK_INLINE void Conv2dLayer::do_backward_parameters(const Activation& gradient) {
    bias_gradient_.run(context(), gradient, activate_ == Activate::relu ? output_.data : nullptr,
                       bias_.gradient().data());
    Plan& plan = *current_;
    if (!plan.gradients && !plan.unfolded) plan_gradients(plan, gradient);
    if (plan.unfolded) {
        run_unfolded(*plan.unfolded, gradient);
    } else {
        run_gradients(plan, gradient);
    }
}

DPTK_INLINE Activation Conv2dLayer::do_backward_input(const Activation& gradient) {
    Plan& plan = *current_;
    const Activation result = input_gradients_.get(context(), gradient.n, input_);
    if (!plan.backward_input) plan_backward_input(plan, gradient, result);
    plan.backward_input->run(context(), input_arguments(gradient, result));
    return result;
}

}  // namespace DPTK_NAMESPACE::nn::cuda
