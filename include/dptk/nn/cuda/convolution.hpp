/// Conv2d with cuDNN, on channels-last images with padded channels. Bias and ReLU are fused with the
/// convolution if cuDNN has a kernel for all three; otherwise a kernel of dptk applies them afterwards.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "dptk/core/config.hpp"
#include "dptk/nn/cuda/bias_gradient.hpp"
#include "dptk/nn/cuda/cudnn_graph.hpp"
#include "dptk/nn/cuda/layer.hpp"
#include "dptk/nn/cuda/matrix_product.hpp"
#include "dptk/nn/cuda/parameter.hpp"
#include "dptk/nn/layers.hpp"

namespace DPTK_NAMESPACE::nn::cuda {

class Conv2dLayer final : public Layer {
  public:
    Conv2dLayer(Context& context, std::string label, const Conv2d& spec, const Form& input, Activate activate,
                Generator& generator);

    std::vector<Parameter*> parameters() override { return {&weight_, &bias_}; }

  private:
    /// The ids by which the tensors of a graph are bound to memory.
    enum Id : std::int64_t { source = 1, weight, bias, output, convolved, biased };
    using Dims = std::array<std::int64_t, 4>;

    /// The maximum size of unfolded images, in bytes.
    static constexpr std::size_t most_unfolded = std::size_t{512} << 20;

    /// The gradient of the weight as one matrix product of unfolded images (im2col): if the output has few
    /// positions, cuDNN's own kernels leave most of a GPU idle.
    struct UnfoldedGradients {
        MatrixProduct product;
        DeviceBuffer<std::byte> rows;
    };

    struct Plan {
        std::optional<CudnnPlan> fused;
        std::optional<CudnnPlan> forward;  // used if the fused one is not available
        std::optional<CudnnPlan> gradients;
        std::optional<UnfoldedGradients> unfolded;  // set if faster than `gradients`, or the only one
        std::optional<CudnnPlan> backward_input;
        bool narrow_gradients = false;  // whether `gradients` writes the type of activations, not f32
    };

    [[nodiscard]] static Form output_of(const Context& context, const Conv2d& spec, const Form& input);

    [[nodiscard]] std::size_t fan_in() const;

    // ---- graphs

    [[nodiscard]] static Dims dims(std::size_t n, std::size_t channels, std::size_t height,
                                   std::size_t width);
    [[nodiscard]] static Dims dims(std::size_t n, const Form& form);
    [[nodiscard]] CudnnDescriptor source_tensor(std::size_t n) const;
    [[nodiscard]] CudnnDescriptor weight_tensor(DType type) const;
    [[nodiscard]] CudnnDescriptor output_tensor(std::size_t n) const;

    [[nodiscard]] CudnnDescriptor convolution() const;

    [[nodiscard]] static CudnnDescriptor pointwise(cudnnPointwiseMode_t mode, const CudnnDescriptor& in,
                                                   const CudnnDescriptor* second, const CudnnDescriptor& out);

    [[nodiscard]] CudnnDescriptor forward_operation(const CudnnDescriptor& x, const CudnnDescriptor& w,
                                                    const CudnnDescriptor& y) const;

    // ---- plans

    [[nodiscard]] std::vector<CudnnArgument> forward_arguments(const Activation& input,
                                                               const Activation& result) const;

    [[nodiscard]] std::vector<CudnnArgument> fused_arguments(const Activation& input,
                                                             const Activation& result) const;

    void plan_forward(Plan& plan, const Activation& input, const Activation& result);

    [[nodiscard]] std::optional<CudnnPlan> find(const std::vector<CudnnDescriptor>& operations,
                                                const std::vector<CudnnArgument>& arguments) const;

    [[nodiscard]] std::vector<CudnnArgument> gradient_arguments(const Plan& plan, const Activation& gradient);

    [[nodiscard]] std::optional<CudnnPlan> find_gradients(const Plan& plan, const Activation& gradient);

    void plan_gradients(Plan& plan, const Activation& gradient);

    void run_gradients(Plan& plan, const Activation& gradient);

    void run_unfolded(UnfoldedGradients& unfolded, const Activation& gradient);

    /// Returns the number of input elements that one output depends on.
    [[nodiscard]] std::size_t window_elements() const noexcept;

    [[nodiscard]] std::vector<CudnnArgument> input_arguments(const Activation& gradient,
                                                             const Activation& result) const;

    void plan_backward_input(Plan& plan, const Activation& gradient, const Activation& result);

    // ---- passes

    DPTK_INLINE Activation do_forward(const Activation& input) override;

    DPTK_INLINE void do_backward_parameters(const Activation& gradient) override;

    DPTK_INLINE Activation do_backward_input(const Activation& gradient) override;

    Conv2d spec_;
    Form input_;
    Activate activate_;
    Parameter weight_;
    Parameter bias_;
    std::map<std::size_t, Plan> plans_;  // by batch size
    Plan* current_ = nullptr;
    Activation source_;
    Activation output_;
    DeviceBuffer<std::byte> narrow_;
    ActivationBuffer outputs_;
    ActivationBuffer input_gradients_;
    BiasGradient bias_gradient_;
};

}  // namespace DPTK_NAMESPACE::nn::cuda

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/nn/cuda/convolution.ipp"
#endif
