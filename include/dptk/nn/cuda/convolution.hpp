/// Conv2d with cuDNN, on channels-last images with padded channels. Bias and ReLU are fused with the
/// convolution if cuDNN has a kernel for that; otherwise a kernel of dptk applies them afterwards.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <variant>
#include <vector>

#include "dptk/core/config.hpp"
#include "dptk/nn/cuda/cudnn_graph.hpp"
#include "dptk/nn/cuda/kernels.hpp"
#include "dptk/nn/cuda/layer.hpp"
#include "dptk/nn/cuda/matrix_product.hpp"
#include "dptk/nn/cuda/weighted_plan.hpp"
#include "dptk/nn/cuda/windows.hpp"

namespace DPTK_NAMESPACE::nn::cuda {

class Conv2dPlan final : public WeightedPlan {
  public:
    Conv2dPlan(Layer& layer, const Layout& input)
        : WeightedPlan(layer, input),
          windows_(windows_of(info().operation, input, output.form)),
          groups_(std::get<Conv2d>(info().operation).groups) {}

  private:
    /// The ids by which the tensors of a graph are bound to memory.
    enum Id : std::int64_t { source = 1, weight_id, bias_id, output_id, convolved, biased };
    using Dims = std::array<std::int64_t, 4>;

    /// The maximum size of unfolded images, in bytes.
    static constexpr std::size_t most_unfolded = std::size_t{512} << 20;

    /// The gradient of the weight as one matrix product of unfolded images (im2col): if the output has few
    /// positions, cuDNN's own kernels leave most of a GPU idle.
    struct UnfoldedGradients {
        MatrixProduct product;
        DeviceBuffer<std::byte> rows;
    };

    // ---- graphs

    [[nodiscard]] static Dims dims(const Layout& layout) {
        return {static_cast<std::int64_t>(layout.n), static_cast<std::int64_t>(layout.form.padded),
                static_cast<std::int64_t>(layout.form.height), static_cast<std::int64_t>(layout.form.width)};
    }
    [[nodiscard]] CudnnDescriptor source_tensor() const {
        return cudnn_tensor(Id::source, context().type(), dims(input()));
    }
    [[nodiscard]] CudnnDescriptor weight_tensor(DType type) const {
        return cudnn_tensor(Id::weight_id, type,
                            {static_cast<std::int64_t>(output.form.padded),
                             static_cast<std::int64_t>(input().form.padded / groups_), windows_.kernel_height,
                             windows_.kernel_width});
    }
    [[nodiscard]] CudnnDescriptor output_tensor() const {
        return cudnn_tensor(Id::output_id, context().type(), dims(output));
    }

    [[nodiscard]] CudnnDescriptor convolution() const {
        using Both = std::array<std::int64_t, 2>;
        const Both padding{windows_.padding_height, windows_.padding_width};
        const cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
        CudnnDescriptor made(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
        made.set(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, std::int64_t{2})
            .set(CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_DATA_FLOAT)
            .set(CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE,
                 std::span<const cudnnConvolutionMode_t>(&mode, 1))
            .set(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, padding)
            .set(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, padding)
            .set(CUDNN_ATTR_CONVOLUTION_DILATIONS, Both{windows_.dilation_height, windows_.dilation_width})
            .set(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, Both{windows_.stride_height, windows_.stride_width})
            .finalize();
        return made;
    }

    [[nodiscard]] static CudnnDescriptor pointwise(cudnnPointwiseMode_t mode, const CudnnDescriptor& in,
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

    [[nodiscard]] CudnnDescriptor forward_operation(const CudnnDescriptor& x, const CudnnDescriptor& w,
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

    // ---- plans

    [[nodiscard]] std::vector<CudnnArgument> forward_arguments(const Arguments& arguments) const {
        return {{Id::source, arguments.inputs[0]->data},
                {Id::weight_id, const_cast<void*>(weight().operand())},
                {Id::output_id, arguments.output->data}};
    }

    [[nodiscard]] std::vector<CudnnArgument> fused_arguments(const Arguments& arguments) const {
        std::vector<CudnnArgument> all = forward_arguments(arguments);
        if (has_bias()) all.push_back({Id::bias_id, const_cast<void*>(bias())});
        return all;
    }

    void plan_forward(const Arguments& arguments) {
        const Dims out = dims(output);
        const CudnnDescriptor x = source_tensor();
        const CudnnDescriptor w = weight_tensor(context().type());
        const CudnnDescriptor y = output_tensor();
        const CudnnDescriptor b = cudnn_tensor(Id::bias_id, context().type(), {1, out[1], 1, 1});
        const CudnnDescriptor after_product = cudnn_tensor(Id::convolved, DType::f32, out, true);
        const CudnnDescriptor after_bias = cudnn_tensor(Id::biased, DType::f32, out, true);
        std::vector<CudnnDescriptor> operations;
        if (has_bias() || has_relu()) {
            operations.push_back(forward_operation(x, w, after_product));
            if (has_bias())
                operations.push_back(
                    pointwise(CUDNN_POINTWISE_ADD, after_product, &b, has_relu() ? after_bias : y));
            if (has_relu())
                operations.push_back(
                    pointwise(CUDNN_POINTWISE_RELU_FWD, has_bias() ? after_bias : after_product, nullptr, y));
            fused_ = find(operations, fused_arguments(arguments));
            if (fused_) return;
            operations.clear();
        }
        operations.push_back(forward_operation(x, w, y));
        forward_ = find(operations, forward_arguments(arguments));
        if (!forward_) throw BackendError("cuDNN has no kernel for the forward pass");
    }

    [[nodiscard]] std::optional<CudnnPlan> find(const std::vector<CudnnDescriptor>& operations,
                                                const std::vector<CudnnArgument>& arguments) const {
        std::vector<cudnnBackendDescriptor_t> pointers;
        for (const CudnnDescriptor& operation : operations) pointers.push_back(operation.get());
        return CudnnPlan::find(context(), pointers, arguments);
    }

    [[nodiscard]] std::vector<CudnnArgument> gradient_arguments(const Arguments& arguments) {
        void* to = weight().gradient().data();
        if (has_narrow_gradients_) to = narrow_.data();
        return {{Id::source, arguments.inputs[0]->data},
                {Id::weight_id, to},
                {Id::output_id, gradient(arguments)}};
    }

    [[nodiscard]] std::optional<CudnnPlan> find_gradients(const Arguments& arguments) {
        const CudnnDescriptor how = convolution();
        const CudnnDescriptor x = source_tensor();
        const CudnnDescriptor dw = weight_tensor(has_narrow_gradients_ ? context().type() : DType::f32);
        const CudnnDescriptor dy = output_tensor();
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
        return find(operations, gradient_arguments(arguments));
    }

    void plan_gradients(const Arguments& arguments) {
        gradients_ = find_gradients(arguments);
        if (!gradients_ && context().type() != DType::f32) {
            has_narrow_gradients_ = true;
            narrow_ = DeviceBuffer<std::byte>(weight().count() * context().type_size());
            gradients_ = find_gradients(arguments);
        }
        const std::size_t rows = output.n * output.form.pixels();
        const std::size_t bytes = rows * window_elements() * context().type_size();
        if (groups_ == 1 && bytes <= most_unfolded) {
            unfolded_.emplace(UnfoldedGradients{MatrixProduct(context(), {.rows = output.form.padded,
                                                                          .columns = window_elements(),
                                                                          .inner = rows,
                                                                          .a = Side::transposed}),
                                                DeviceBuffer<std::byte>(bytes)});
            run_unfolded(arguments);
        }
        if (!gradients_ && !unfolded_)
            throw BackendError("cuDNN has no kernel for the gradient of the weight");
        if (!gradients_ || !unfolded_) return;
        const std::size_t fastest = find_fastest(context(), 2, [&](std::size_t i) {
            if (i == 0) run_gradients(arguments);
            if (i == 1) run_unfolded(arguments);
        });
        if (fastest == 0) unfolded_.reset();
    }

    void run_gradients(const Arguments& arguments) {
        gradients_->run(context(), gradient_arguments(arguments));
        if (has_narrow_gradients_)
            kernels::convert(narrow_.data(), context().type(), weight().gradient().data(), DType::f32,
                             weight().count(), context().stream());
    }

    void run_unfolded(const Arguments& arguments) {
        kernels::unfold(arguments.inputs[0]->data, unfolded_->rows.data(), context().type(), windows_,
                        context().stream());
        unfolded_->product.run(gradient(arguments), unfolded_->rows.data(), weight().gradient().data());
    }

    /// Returns the number of input elements that one output depends on.
    [[nodiscard]] std::size_t window_elements() const noexcept {
        return static_cast<std::size_t>(windows_.kernel_height * windows_.kernel_width) * input().form.padded;
    }

    [[nodiscard]] std::vector<CudnnArgument> input_arguments(const Arguments& arguments) const {
        return {{Id::source, arguments.input_gradients[0]->data},
                {Id::weight_id, const_cast<void*>(weight().operand())},
                {Id::output_id, gradient(arguments)}};
    }

    void plan_backward_input(const Arguments& arguments) {
        const CudnnDescriptor how = convolution();
        const CudnnDescriptor dx = source_tensor();
        const CudnnDescriptor w = weight_tensor(context().type());
        const CudnnDescriptor dy = output_tensor();
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
        backward_input_ = find(operations, input_arguments(arguments));
        if (!backward_input_) throw BackendError("cuDNN has no kernel for the gradient of the input");
    }

    // ---- passes

    void do_forward(const Arguments& arguments, const Pass& /*pass*/) override {
        if (!fused_ && !forward_) plan_forward(arguments);
        if (fused_) {
            fused_->run(context(), fused_arguments(arguments));
        } else {
            forward_->run(context(), forward_arguments(arguments));
            if (has_bias() || has_relu())
                kernels::add_bias(arguments.output->data, bias(), context().type(),
                                  output.n * output.form.pixels(), output.form.padded, has_relu(),
                                  context().stream());
        }
    }

    void do_backward_weight(const Arguments& arguments) override {
        if (!gradients_ && !unfolded_) plan_gradients(arguments);
        if (unfolded_) {
            run_unfolded(arguments);
        } else {
            run_gradients(arguments);
        }
    }

    void do_backward_inputs(const Arguments& arguments, const Pass& /*pass*/) override {
        if (!backward_input_) plan_backward_input(arguments);
        backward_input_->run(context(), input_arguments(arguments));
    }

    kernels::Windows windows_;
    std::size_t groups_;
    std::optional<CudnnPlan> fused_;
    std::optional<CudnnPlan> forward_;  // used if the fused one is not available
    std::optional<CudnnPlan> gradients_;
    std::optional<UnfoldedGradients> unfolded_;  // set if faster than gradients_, or the only one
    std::optional<CudnnPlan> backward_input_;
    bool has_narrow_gradients_ = false;  // whether gradients_ writes the type of activations, not f32
    DeviceBuffer<std::byte> narrow_;
};

}  // namespace DPTK_NAMESPACE::nn::cuda
