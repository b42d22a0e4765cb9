/// The base class of the oneDNN layers: primitives cached by batch size, and errors that name the layer.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "dptk/core/config.hpp"
#include "dptk/core/detail/text.hpp"
#include "dptk/core/error.hpp"
#include "dptk/nn/cpu/memory.hpp"
#include "dptk/nn/cpu/onednn.hpp"
#include "dptk/nn/cpu/parameter.hpp"

namespace DPTK_NAMESPACE::nn::cpu {

/// Calls `fn` and converts oneDNN's exceptions to BackendError. `label` names the layer in the message.
template <class Fn>
decltype(auto) translate_errors(const std::string& label, Fn&& fn) {
    try {
        return std::forward<Fn>(fn)();
    } catch (const dnnl::error& error) {
        throw BackendError(dptk::detail::text("oneDNN: ", label, ": ", error.what(), " (status ",
                                              static_cast<int>(error.status), ")"));
    }
}

/// The base class of the oneDNN layers; see NetworkLayer for the meaning of the calls.
class Layer {
  public:
    Layer(const Context& context, std::string label);

    Layer(const Layer&) = delete;
    Layer& operator=(const Layer&) = delete;
    virtual ~Layer() = default;

    virtual std::vector<Parameter*> parameters() { return {}; }

    Activation forward(const Activation& input);

    void backward_parameters(const Activation& output_gradient);

    Activation backward_input(const Activation& output_gradient);

    /// Returns the layout of the output for a batch of nominal_batch samples.
    [[nodiscard]] virtual Layout nominal_output() const = 0;

  protected:
    [[nodiscard]] const Context& context() const noexcept { return context_; }

  private:
    virtual Activation do_forward(const Activation& input) = 0;

    virtual void do_backward_parameters(const Activation& /*output_gradient*/) {}

    virtual Activation do_backward_input(const Activation& output_gradient) = 0;

    Context context_;
    std::string label_;
};

/// A layer's primitives: one `Plan` for each batch size, created at its first use. Layouts of inputs and
/// gradients depend only on the network and the batch size, so a plan may rely on the layouts that it was
/// created for.
template <class Plan>
class Plans {
  public:
    /// Returns the plan for the batch size of `input`, created by `make(layout)` on first use.
    /// current() returns this plan from now on.
    template <class Make>
    Plan& select(const Activation& input, Make&& make) {
        const dnnl::memory::dim batch = batch_size(input.memory);
        auto found = plans_.find(batch);
        if (found == plans_.end())
            found = plans_.emplace(batch, std::forward<Make>(make)(input.layout())).first;
        current_ = &found->second;
        return *current_;
    }

    [[nodiscard]] Plan& current() { return *current_; }

  private:
    std::map<dnnl::memory::dim, Plan> plans_;
    Plan* current_ = nullptr;
};

}  // namespace DPTK_NAMESPACE::nn::cpu

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/nn/cpu/layer.ipp"
#endif
