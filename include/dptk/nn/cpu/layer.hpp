/// The base of the oneDNN layers: one set of primitives for each batch size, and errors that name the layer.
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

/// Calls `fn` and turns oneDNN's exceptions into ours.
/// \param who the layer, for the message
template <class Fn>
decltype(auto) translate_errors(const std::string& who, Fn&& fn) {
    try {
        return std::forward<Fn>(fn)();
    } catch (const dnnl::error& error) {
        throw BackendError(dptk::detail::text("oneDNN: ", who, ": ", error.what(), " (status ",
                                              static_cast<int>(error.status), ")"));
    }
}

/// The base of the oneDNN layers; see NetworkLayer for what the calls do.
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

    /// The layout of the output for the nominal batch; see nominal_batch.
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

/// A layer's primitives: one `Plan` for each batch size, made at its first use. Layouts of inputs and of
/// gradients depend on the network and the batch size alone, so that a plan may rely on those that it was
/// made for.
template <class Plan>
class Plans {
  public:
    /// The plan for the batch size of `input`, made by `make(layout)` where there is none; current() from now
    /// on.
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
