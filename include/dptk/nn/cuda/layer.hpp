/// Values between the operations of a network on a GPU, the layers, and the base class of their plans.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "dptk/core/buffer.hpp"
#include "dptk/core/config.hpp"
#include "dptk/core/detail/text.hpp"
#include "dptk/core/error.hpp"
#include "dptk/nn/backend.hpp"
#include "dptk/nn/cuda/context.hpp"
#include "dptk/nn/cuda/kernels.hpp"
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

    friend bool operator==(const Form&, const Form&) = default;
};

/// The memory layout of `n` samples.
struct Layout {
    std::size_t n = 0;
    Form form;
};

/// A non-owning reference to `n` samples with the layout `form`, whose elements have the type of activations.
struct Activation {
    void* data = nullptr;
    std::size_t n = 0;
    Form form;
};

/// Copies remain equal when one of them is bound to memory.
using Memory = std::shared_ptr<Activation>;

using Request = LayerRequest<Layout, float>;
using Arguments = nn::Arguments<Memory>;
using PlanPointer = std::unique_ptr<OperationPlan<Layout, Memory>>;

/// Calls `fn`, and adds the operation's name to BackendErrors that it throws.
template <class Fn>
decltype(auto) with_name(const std::string& operation, Fn&& fn) {
    try {
        return std::forward<Fn>(fn)();
    } catch (const BackendError& error) {
        throw BackendError(dptk::detail::text(operation, ": ", error.what()));
    }
}

/// A layer; see NetworkLayer for the meaning of the calls.
class Layer {
  public:
    using MakePlan = PlanPointer (*)(Layer& layer, const Layout& input);

    Layer(Context& context, const Request& request, const Form& output, MakePlan make_plan);

    Layer(const Layer&) = delete;
    Layer& operator=(const Layer&) = delete;

    std::vector<Parameter*> parameters();

    [[nodiscard]] Layout nominal_output() const { return {.n = 1, .form = output_}; }

    PlanPointer plan(std::size_t batch, std::span<const Layout> inputs);

    [[nodiscard]] Context& context() const noexcept { return context_; }

    [[nodiscard]] const OperationInfo& info() const noexcept { return info_; }

    [[nodiscard]] const Form& output_form() const noexcept { return output_; }

    [[nodiscard]] std::size_t parameter_count() const noexcept { return parameters_.size(); }

    [[nodiscard]] Parameter& parameter(std::size_t i) const { return *parameters_[i]; }

    /// Returns the running statistics of a batch norm.
    [[nodiscard]] const kernels::RunningState& running() const noexcept { return running_; }

    /// Returns the running mean, variance and number of batches of a batch norm, in device memory.
    [[nodiscard]] std::array<Buffer, 3> buffers() const;

  private:
    Context& context_;
    OperationInfo info_;
    Form output_;
    MakePlan make_plan_;
    std::vector<std::unique_ptr<Parameter>> parameters_;
    DeviceBuffer<float> statistics_;
    DeviceBuffer<std::int64_t> batch_count_;
    kernels::RunningState running_;
};

/// The base class of the layers' plans; see OperationPlan for the meaning of the calls. The calls enqueue
/// their work on the context's stream and do not block, except that the first one of each may allocate memory
/// and measure kernels.
class Plan : public OperationPlan<Layout, Memory> {
  public:
    Plan(Layer& layer, const Layout& input);

    void forward(const Arguments& arguments, const Pass& pass) final;
    void backward_parameters(const Arguments& arguments, const Pass& pass) final;
    void backward_inputs(const Arguments& arguments, const Pass& pass) final;

  protected:
    /// Returns memory that is bound before the plan runs.
    Memory add_workspace(std::size_t bytes, nn::detail::WorkspaceUse when);

    [[nodiscard]] Layer& layer() const noexcept { return layer_; }

    [[nodiscard]] const OperationInfo& info() const noexcept { return layer_.info(); }

    /// Whether forward also computes a ReLU.
    [[nodiscard]] bool has_relu() const noexcept { return info().relu == FusedReLU::follows; }

    [[nodiscard]] Context& context() const noexcept { return layer_.context(); }

    [[nodiscard]] const Layout& input() const noexcept { return input_; }

    /// Returns the number of elements of the input, with padding.
    [[nodiscard]] std::size_t elements() const noexcept { return input_.n * input_.form.elements(); }

  private:
    virtual void do_forward(const Arguments& arguments, const Pass& pass) = 0;
    virtual void do_backward_parameters(const Arguments& /*arguments*/, const Pass& /*pass*/) {}
    virtual void do_backward_inputs(const Arguments& arguments, const Pass& pass) = 0;

    Layer& layer_;
    Layout input_;
};

}  // namespace DPTK_NAMESPACE::nn::cuda

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/nn/cuda/layer.ipp"
#endif
