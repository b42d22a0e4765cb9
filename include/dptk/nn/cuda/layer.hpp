/// What flows between the layers of a network on a GPU, and the base of them.
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

/// How a sample's numbers lie: [height, width, padded channels]. Rows of features are channels of one pixel.
/// Padding is zero.
struct Form {
    std::size_t channels = 0;
    std::size_t padded = 0;
    std::size_t height = 1;
    std::size_t width = 1;

    [[nodiscard]] std::size_t pixels() const noexcept { return height * width; }
    [[nodiscard]] std::size_t elements() const noexcept { return padded * pixels(); }
};

/// `n` samples of a form, in the type of activations. Points.
struct Activation {
    void* data = nullptr;
    std::size_t n = 0;
    Form form;
};

/// Memory for activations, which grows.
class ActivationBuffer {
  public:
    [[nodiscard]] Activation get(Context& context, std::size_t n, const Form& form);

  private:
    DeviceBuffer<std::byte> memory_;
};

/// Calls `fn`, and names the layer in what the libraries below throw.
template <class Fn>
decltype(auto) with_name(const std::string& layer, Fn&& fn) {
    try {
        return std::forward<Fn>(fn)();
    } catch (const BackendError& error) {
        throw BackendError(dptk::detail::text(layer, ": ", error.what()));
    }
}

/// The base of the layers; see NetworkLayer for what the calls do. They put their work on the context's
/// stream, and the host goes on, but for the first call of a batch size, which plans.
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

/// Whether a ReLU comes with a layer's output, and who zeroes its gradient.
enum class Activate : std::uint8_t {
    none,
    relu,
    /// The pooling behind it does.
    relu_masked_behind,
};

}  // namespace DPTK_NAMESPACE::nn::cuda

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/nn/cuda/layer.ipp"
#endif
