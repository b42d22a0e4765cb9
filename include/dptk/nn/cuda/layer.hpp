/// Activations between the layers of a network on a GPU, and the base class of the layers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "dptk/core/config.hpp"
#include "dptk/core/detail/text.hpp"
#include "dptk/core/error.hpp"
#include "dptk/nn/cuda/context.hpp"
#include "dptk/nn/cuda/parameter.hpp"

namespace DPTK_NAMESPACE::nn::cuda {

/// The memory layout of a sample: [height, width, padded channels]. A row of features counts as the
/// channels of one pixel. Padding is zero.
struct Form {
    std::size_t channels = 0;
    std::size_t padded = 0;
    std::size_t height = 1;
    std::size_t width = 1;

    [[nodiscard]] std::size_t pixels() const noexcept { return height * width; }
    [[nodiscard]] std::size_t elements() const noexcept { return padded * pixels(); }
};

/// A non-owning reference to `n` samples with the layout `form`, whose elements have the type of activations.
struct Activation {
    void* data = nullptr;
    std::size_t n = 0;
    Form form;
};

/// Memory for activations. It grows, and never shrinks.
class ActivationBuffer {
  public:
    [[nodiscard]] Activation get(Context& context, std::size_t n, const Form& form);

  private:
    DeviceBuffer<std::byte> memory_;
};

/// Calls `fn`, and adds the layer's name to BackendErrors that it throws.
template <class Fn>
decltype(auto) with_name(const std::string& layer, Fn&& fn) {
    try {
        return std::forward<Fn>(fn)();
    } catch (const BackendError& error) {
        throw BackendError(dptk::detail::text(layer, ": ", error.what()));
    }
}

/// The base class of the layers; see NetworkLayer for the meaning of the calls. The calls enqueue their work
/// on the context's stream and do not block, except that the first call for a batch size may allocate memory
/// and measure kernels.
class Layer {
  public:
    Layer(Context& context, std::string label, const Form& output);

    Layer(const Layer&) = delete;
    Layer& operator=(const Layer&) = delete;
    virtual ~Layer() = default;

    virtual std::vector<Parameter*> parameters() { return {}; }

    Activation forward(const Activation& input);

    void backward_parameters(const Activation& output_gradient);

    Activation backward_input(const Activation& output_gradient);

    [[nodiscard]] const Form& output_form() const noexcept { return output_; }

  protected:
    [[nodiscard]] Context& context() const noexcept { return context_; }

  private:
    virtual Activation do_forward(const Activation& input) = 0;
    virtual void do_backward_parameters(const Activation& /*output_gradient*/) {}
    virtual Activation do_backward_input(const Activation& output_gradient) = 0;

    Context& context_;
    std::string label_;
    Form output_;
};

/// Whether a ReLU is fused with a layer, and which layer applies the ReLU's backward pass.
enum class Activate : std::uint8_t {
    none,
    relu,
    /// A ReLU is fused, and the MaxPool2d that follows applies the backward pass.
    relu_masked_by_pool,
};

}  // namespace DPTK_NAMESPACE::nn::cuda

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/nn/cuda/layer.ipp"
#endif
