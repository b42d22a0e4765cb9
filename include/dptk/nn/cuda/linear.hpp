/// Linear with cuBLASLt. Bias and ReLU are fused with the matrix product.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include "dptk/core/config.hpp"
#include "dptk/nn/cuda/bias_gradient.hpp"
#include "dptk/nn/cuda/layer.hpp"
#include "dptk/nn/cuda/matrix_product.hpp"
#include "dptk/nn/cuda/parameter.hpp"
#include "dptk/nn/layers.hpp"

namespace DPTK_NAMESPACE::nn::cuda {

class LinearLayer final : public Layer {
  public:
    LinearLayer(Context& context, std::string label, const Linear& spec, const Form& input, Activate activate,
                Generator& generator);

    std::vector<Parameter*> parameters() override { return {&weight_, &bias_}; }

  private:
    struct Plan {
        MatrixProduct forward;
        MatrixProduct gradients;
        MatrixProduct backward_input;
    };

    [[nodiscard]] Plan make_plan(std::size_t n);

    DPTK_INLINE Activation do_forward(const Activation& input) override;

    DPTK_INLINE void do_backward_parameters(const Activation& gradient) override;

    DPTK_INLINE Activation do_backward_input(const Activation& gradient) override;

    Form input_;
    Activate activate_;
    Parameter weight_;
    Parameter bias_;
    std::map<std::size_t, Plan> plans_;  // by batch size
    Plan* current_ = nullptr;
    Activation source_;
    Activation output_;
    ActivationBuffer outputs_;
    ActivationBuffer input_gradients_;
    BiasGradient bias_gradient_;
};

}  // namespace DPTK_NAMESPACE::nn::cuda

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/nn/cuda/linear.ipp"
#endif
