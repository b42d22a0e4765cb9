/// Conv2d with cuDNN, on channels-last images with padded channels. Bias and ReLU are fused with the
/// convolution if cuDNN has a kernel for all three; otherwise a kernel of dptk applies them afterwards.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "dptk/core/config.hpp"
#include "dptk/nn/cuda/cudnn_graph.hpp"
#include "dptk/nn/cuda/layer.hpp"
#include "dptk/nn/cuda/matrix_product.hpp"
#include "dptk/nn/cuda/weighted_plan.hpp"

namespace DPTK_NAMESPACE::nn::cuda {

class Conv2dPlan final : public WeightedPlan {
  public:
    Conv2dPlan(Layer& layer, const Layout& input);

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

    [[nodiscard]] static Dims dims(std::size_t n, std::size_t channels, std::size_t height,
                                   std::size_t width);
    [[nodiscard]] static Dims dims(const Layout& layout);
    [[nodiscard]] CudnnDescriptor source_tensor() const;
    [[nodiscard]] CudnnDescriptor weight_tensor(DType type) const;
    [[nodiscard]] CudnnDescriptor output_tensor() const;

    [[nodiscard]] CudnnDescriptor convolution() const;

    [[nodiscard]] static CudnnDescriptor pointwise(cudnnPointwiseMode_t mode, const CudnnDescriptor& in,
                                                   const CudnnDescriptor* second, const CudnnDescriptor& out);

    [[nodiscard]] CudnnDescriptor forward_operation(const CudnnDescriptor& x, const CudnnDescriptor& w,
                                                    const CudnnDescriptor& y) const;

    // ---- plans

    [[nodiscard]] std::vector<CudnnArgument> forward_arguments(const Arguments& arguments) const;

    [[nodiscard]] std::vector<CudnnArgument> fused_arguments(const Arguments& arguments) const;

    void plan_forward(const Arguments& arguments);

    [[nodiscard]] std::optional<CudnnPlan> find(const std::vector<CudnnDescriptor>& operations,
                                                const std::vector<CudnnArgument>& arguments) const;

    [[nodiscard]] std::vector<CudnnArgument> gradient_arguments(const Arguments& arguments);

    [[nodiscard]] std::optional<CudnnPlan> find_gradients(const Arguments& arguments);

    void plan_gradients(const Arguments& arguments);

    void run_gradients(const Arguments& arguments);

    void run_unfolded(const Arguments& arguments);

    /// Returns the number of input elements that one output depends on.
    [[nodiscard]] std::size_t window_elements() const noexcept;

    [[nodiscard]] std::vector<CudnnArgument> input_arguments(const Arguments& arguments) const;

    void plan_backward_input(const Arguments& arguments);

    // ---- passes

    DPTK_INLINE void do_forward(const Arguments& arguments) override;

    DPTK_INLINE void do_backward_weight(const Arguments& arguments) override;

    DPTK_INLINE void do_backward_inputs(const Arguments& arguments) override;

    std::size_t kernel_size_;
    std::size_t stride_;
    std::size_t padding_;
    std::optional<CudnnPlan> fused_;
    std::optional<CudnnPlan> forward_;  // used if the fused one is not available
    std::optional<CudnnPlan> gradients_;
    std::optional<UnfoldedGradients> unfolded_;  // set if faster than gradients_, or the only one
    std::optional<CudnnPlan> backward_input_;
    bool has_narrow_gradients_ = false;  // whether gradients_ writes the type of activations, not f32
    DeviceBuffer<std::byte> narrow_;
};

}  // namespace DPTK_NAMESPACE::nn::cuda

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/nn/cuda/convolution.ipp"
#endif
