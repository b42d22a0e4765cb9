/// The layers of a network on oneDNN, and the base class of their plans.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "dptk/core/config.hpp"
#include "dptk/core/detail/text.hpp"
#include "dptk/core/error.hpp"
#include "dptk/nn/backend.hpp"
#include "dptk/nn/cpu/onednn.hpp"
#include "dptk/nn/cpu/parameter.hpp"
#include "dptk/nn/cpu/primitive.hpp"

namespace DPTK_NAMESPACE::nn::cpu {

using Request = LayerRequest<Layout, float>;
using Arguments = nn::Arguments<dnnl::memory>;
using PlanPointer = std::unique_ptr<OperationPlan<Layout, dnnl::memory>>;
using nn::detail::WorkspaceUse;

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

/// Returns dimensions for a batch of samples of this shape.
[[nodiscard]] inline Dims dims_of_batch(std::size_t batch, const Shape& sample) {
    Dims dims{static_cast<dnnl::memory::dim>(batch)};
    dims.insert(dims.end(), sample.begin(), sample.end());
    return dims;
}

/// An operation with its parameters; see NetworkLayer for the meaning of the calls.
class Layer {
  public:
    Layer(const Context& context, const Request& request);

    Layer(const Layer&) = delete;
    Layer& operator=(const Layer&) = delete;

    [[nodiscard]] std::vector<Parameter*> parameters() const {
        std::vector<Parameter*> all;
        for (const auto& parameter : parameters_) all.push_back(parameter.get());
        return all;
    }
    [[nodiscard]] const Layout& nominal_output() const noexcept { return nominal_output_; }
    [[nodiscard]] PlanPointer plan(std::size_t batch, std::span<const Layout> inputs) {
        return translate_errors(info_.label, [&] { return make_plan(batch, inputs); });
    }

    [[nodiscard]] const Context& context() const noexcept { return context_; }
    [[nodiscard]] const OperationInfo& info() const noexcept { return info_; }
    [[nodiscard]] RunningStatistics<float>* statistics() const noexcept { return statistics_; }
    [[nodiscard]] bool has_bias() const noexcept { return parameters_.size() == 2; }
    [[nodiscard]] const Parameter& weight() const noexcept { return *parameters_[0]; }
    [[nodiscard]] const Parameter& bias() const noexcept { return *parameters_[1]; }

    /// Whether the operation before is a batch norm, which also computes the gradient of a fused ReLU.
    [[nodiscard]] bool follows_norm() const noexcept { return follows_norm_; }

    /// Whether a Flatten returns images as they are, since all that follows is Linear.
    [[nodiscard]] bool passes_images() const noexcept { return passes_images_; }

  private:
    [[nodiscard]] PlanPointer make_plan(std::size_t batch, std::span<const Layout> inputs);

    Context context_;
    OperationInfo info_;
    RunningStatistics<float>* statistics_;
    bool follows_norm_;
    bool passes_images_;
    std::vector<std::unique_ptr<Parameter>> parameters_;
    Layout nominal_output_;
};

/// The base class of the layers' plans; see OperationPlan for the meaning of the calls.
class Plan : public OperationPlan<Layout, dnnl::memory> {
  public:
    explicit Plan(Layer& layer) : layer_(layer) {}

    std::vector<Layout> plan_backward(const Layout& output_gradient) final {
        return translate_errors(info().label, [&] { return do_plan_backward(output_gradient); });
    }
    void forward(const Arguments& arguments, const Pass& pass) final {
        translate_errors(info().label, [&] { do_forward(arguments, pass); });
    }
    void backward_parameters(const Arguments& arguments, const Pass& pass) final {
        translate_errors(info().label, [&] { do_backward_parameters(arguments, pass); });
    }
    void backward_inputs(const Arguments& arguments, const Pass& pass) final {
        translate_errors(info().label, [&] { do_backward_inputs(arguments, pass); });
    }

  protected:
    [[nodiscard]] Layer& layer() const noexcept { return layer_; }
    [[nodiscard]] const Context& context() const noexcept { return layer_.context(); }
    [[nodiscard]] const OperationInfo& info() const noexcept { return layer_.info(); }

    /// Returns memory of the layout `layout`, which the network binds.
    dnnl::memory add_workspace(const Layout& layout, WorkspaceUse when) {
        const dnnl::memory memory = unbound(context(), layout);
        workspaces.push_back({memory, layout.get_size(), when});
        return memory;
    }

    /// Returns a converter with a workspace for the copy.
    Converter add_converter(const Layout& from, const Layout& wanted, WorkspaceUse when) {
        if (from == wanted) return {};
        return {context(), from, add_workspace(wanted, when)};
    }

  private:
    virtual std::vector<Layout> do_plan_backward(const Layout& output_gradient) = 0;
    virtual void do_forward(const Arguments& arguments, const Pass& pass) = 0;
    virtual void do_backward_parameters(const Arguments& /*arguments*/, const Pass& /*pass*/) {}
    virtual void do_backward_inputs(const Arguments& /*arguments*/, const Pass& /*pass*/) {}

    Layer& layer_;
};

}  // namespace DPTK_NAMESPACE::nn::cpu
