/// Network, which runs a Graph on a backend: forward and backward, without an autograd tape. The caller may
/// supply the memory of gradients, such as DDP's buckets, and a callback reports each gradient as soon as it
/// is complete.
#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "dptk/control/process/signal_delay.hpp"
#include "dptk/core/buffer.hpp"
#include "dptk/core/config.hpp"
#include "dptk/core/detail/algorithms.hpp"
#include "dptk/core/detail/text.hpp"
#include "dptk/core/device_span.hpp"
#include "dptk/core/dtype.hpp"
#include "dptk/core/error.hpp"
#include "dptk/core/parameter_ref.hpp"
#include "dptk/core/tensor.hpp"
#include "dptk/core/trace.hpp"
#include "dptk/nn/backend.hpp"
#include "dptk/nn/detail/network_structure.hpp"
#include "dptk/nn/graph.hpp"
#include "dptk/nn/host_call.hpp"
#include "dptk/nn/reference/batch_norm.hpp"

namespace DPTK_NAMESPACE::nn {

/// Whether backward also computes the gradient of the network's input, which training does not need.
enum class InputGradient { skip, compute };

/// Options of batch norms that are synchronized.
struct SynchronizedNormOptions {
    /// Whether the loss is a mean over a rank's samples, and gradients are averaged by the numbers of
    /// samples: set it if DistributedDataParallel::begin_step() gets the number of samples, and ranks may
    /// have different ones. Otherwise all ranks' gradients count equally, as in PyTorch.
    bool weighs_by_samples = false;
};

/// A network with the structure of a Graph on a backend: `Network<Reference<double>>`, `Network<Cpu>`. Not
/// thread-safe. Parameters are numbered and named as Graph::parameters() does. Values and gradients share a
/// few pieces of memory, whose use is planned once for each batch size.
template <NetworkBackend Backend>
class Network {
  public:
    using Scalar = typename Backend::Scalar;  ///< The element type of parameters, inputs and outputs.
    /// Whether the buffers are in device memory, where they cannot be read directly.
    static constexpr bool has_device_buffers = requires(typename Backend::Layer layer) { layer.buffers(); };
    /// The tensor type, in host or device memory, depending on the backend.
    using Tensor = typename Backend::Tensor;
    /// A view of a parameter's elements, in the same kind of memory as Tensor.
    using Elements = typename Backend::Elements;

    /// Makes a network. `seed` determines the initial values, which are the same on all backends (see
    /// initial_values()), and the elements that dropout drops. Throws ArgumentError if the graph has only an
    /// input, if the output of an operation that is not the last one is not used, or if the backend lacks an
    /// operation, and BackendError if the backend's library rejects one.
    Network(Graph graph, std::uint64_t seed, Backend backend = Backend{})
        : graph_(std::move(graph)), backend_(std::move(backend)), pass_{.seed = seed} {
        structure_ = detail::structure_of(
            graph_, [&](const Operation& operation) { return backend_.fuses_relu(operation); });
        make_layers(seed);
        set_frozen({});
    }

    Network(Network&&) noexcept = default;
    Network& operator=(Network&&) noexcept = default;

    /// Returns the graph.
    [[nodiscard]] const Graph& graph() const noexcept { return graph_; }

    /// Sets how subsequent forward passes treat batch norms and dropout. Networks begin in Mode::train.
    void set_mode(Mode mode) noexcept { mode_ = mode; }

    /// Returns how batch norms and dropout are treated.
    [[nodiscard]] Mode mode() const noexcept { return mode_; }

    /// Freezes the parameters at these indices, and no others: backward computes no gradients for them, and
    /// does nothing for layers below the lowest one that has other parameters. A batch norm whose parameters
    /// are all frozen is always in Mode::evaluate, and so keeps its running statistics. Networks begin
    /// without frozen parameters. Call it before a forward, not between forward and backward. Throws
    /// ArgumentError if there is no such parameter.
    void set_frozen(std::span<const std::size_t> parameters) {
        for (const std::size_t i : parameters) static_cast<void>(parameter_at(i));
        is_frozen_.assign(parameters_.size(), false);
        for (const std::size_t i : parameters) is_frozen_[i] = true;
        detail::set_frozen(structure_, graph_, is_frozen_);
        has_forward_ = false;
    }

    /// Returns whether parameter `i` is frozen. Throws ArgumentError if there is no such parameter.
    [[nodiscard]] bool is_frozen(std::size_t i) const {
        static_cast<void>(parameter_at(i));
        return is_frozen_[i];
    }

    /// Makes the batch norms that are synchronized use the batches of all ranks of the group, which must
    /// outlive the network: in training, each of them calls all_reduce twice in forward, and once in
    /// backward. Ranks may have batches of different sizes, also empty ones.
    template <class Group>
    void set_group(Group& group, const SynchronizedNormOptions& options = {}) {
        pass_.sum_over_ranks = [&group](std::span<double> values) {
            const SignalDelay::Pause pause;  // other ranks may let this one wait
            group.all_reduce(values);
        };
        pass_.weighs_by_samples = options.weighs_by_samples;
    }

    /// Returns the output [n, ...output_shape()] for the input [n, ...input_shape()]. n may differ between
    /// calls, and be 0; plans for a batch size are made at its first use and kept. The input must stay valid
    /// and unchanged until the last backward for it. The output is valid until the next forward. Collective
    /// in training if batch norms are synchronized. Throws ArgumentError if the input has another shape.
    const Tensor& forward(const Tensor& input) {
        const std::size_t n = input.shape().empty() ? 0 : input.shape()[0];
        require_shape("an input", input, n, input_shape());
        [[maybe_unused]] const auto scope = pass_scope();
        current_ = nullptr;
        has_forward_ = false;
        pass_.mode = mode_;
        output_.resize(n, output_shape());
        pass_.step = next_step_;
        if (n == 0) {
            forward_empty();
        } else {
            Plan& plan = plan_for(n);
            if constexpr (requires { backend_.begin_forward(); }) backend_.begin_forward();
            for (Memory& view : plan.input_views) backend_.load(input, view);
            for (std::size_t i = 0; i < plan.steps.size(); ++i)
                plan.steps[i].plan->forward(plan.steps[i].arguments, pass_of(i + 1));
            (*plan.store_output)(output_);
            current_ = &plan;
        }
        if (mode_ == Mode::train) ++next_step_;
        has_forward_ = true;
        return output_;
    }

    /// Computes the gradients of all parameters for the batch of the last forward, and overwrites the
    /// previous gradients; those of frozen parameters are unspecified. `output_gradient` is the gradient of
    /// the loss with respect to the output, and has the output's shape. `on_ready` is called with the index
    /// of each parameter that is not frozen as soon as its gradient is complete, in descending order of the
    /// indices. Collective if forward was; then `input_gradient` must be equal on all ranks. Throws
    /// ArgumentError if no forward has preceded since the last backward, which overwrites what forward has
    /// kept, or if the shape is not the output's.
    template <std::invocable<std::size_t> OnReady>
    void backward(const Tensor& output_gradient, OnReady&& on_ready,
                  InputGradient input_gradient = InputGradient::skip) {
        if (!has_forward_) throw ArgumentError("Network: call forward() before each backward()");
        require_shape("an output gradient", output_gradient, output_.shape()[0], output_shape());
        has_forward_ = false;
        [[maybe_unused]] const auto scope = pass_scope();
        if (input_gradient == InputGradient::compute)
            input_gradient_.resize(output_.shape()[0], input_shape());
        if (current_ == nullptr) return backward_empty(on_ready, input_gradient);
        Plan& plan = *current_;
        for (Memory& view : plan.gradient_views) backend_.load(output_gradient, view);
        for (std::size_t i = plan.steps.size(); i-- > 0;) {
            const std::size_t node = i + 1;
            const bool needs_inputs =
                structure_.trains_inputs[node] || input_gradient == InputGradient::compute;
            if (!structure_.trains[node] && !needs_inputs) continue;
            const trace::Span span("backward of layer", i);
            Step& step = plan.steps[i];
            const Pass& pass = pass_of(node);
            // Also if all parameters are frozen: a plan may need it before backward_inputs().
            step.plan->backward_parameters(step.arguments, pass);
            report_down_to(structure_.parameters_end[node - 1], structure_.parameters_end[node], on_ready);
            if (!needs_inputs) continue;
            step.plan->backward_inputs(step.arguments, pass);
            for (Sum& sum : step.sums) sum();
        }
        if (input_gradient == InputGradient::compute) (*plan.store_input_gradient)(input_gradient_);
    }

    /// Computes the gradients of all parameters, without a callback.
    void backward(const Tensor& output_gradient, InputGradient input_gradient = InputGradient::skip) {
        backward(
            output_gradient, [](std::size_t) {}, input_gradient);
    }

    /// Returns the gradient of the input from the last backward with InputGradient::compute, in the input's
    /// shape.
    [[nodiscard]] const Tensor& input_gradient() const noexcept { return input_gradient_; }

    /// Calls `sink(ParameterRef)` for each parameter, in the order of Graph::parameters(). The pointers are
    /// valid until set_value_storage(), set_gradient_storage(), use_row_major_parameters() or
    /// agree_on_layouts() is called, or the network is destroyed.
    template <std::invocable<ParameterRef> Sink>
    void for_each_parameter(Sink&& sink) {
        refs_.resize(parameters_.size());
        for (std::size_t i = 0; i < parameters_.size(); ++i) {
            Parameter& parameter = *parameters_[i];
            ParameterRef& ref = refs_[i];
            ref.name = structure_.parameters[i].name;
            ref.shape = parameter.shape();
            ref.dtype = dtype_of<Scalar>;
            ref.device = device_of(parameter.values());
            ref.count = parameter.count();
            ref.value = parameter.values().data();
            ref.gradient = parameter.gradient().data();
            ref.layout = parameter.layout();
            sink(std::as_const(ref));
        }
    }

    /// Calls `sink(NamedBuffer)` for each buffer, in the order of Graph::buffers().
    template <std::invocable<NamedBuffer> Sink>
    void for_each_buffer(Sink&& sink) {
        for (const auto& norm : norms_) {
            const std::array<Buffer, 3> buffers = buffers_of(*norm);
            if (norm->named.empty()) {
                const std::string prefix = graph_.nodes()[norm->node].name + '.';
                const Shape shape{buffers[0].count};
                norm->named = {{prefix + "running_mean", shape, {}},
                               {prefix + "running_var", shape, {}},
                               {prefix + "num_batches_tracked", {}, {}}};
            }
            for (std::size_t i = 0; i < buffers.size(); ++i) {
                norm->named[i].data = buffers[i];
                sink(std::as_const(norm->named[i]));
            }
        }
    }

    /// Copies the elements of one of for_each_buffer()'s buffers to host memory. Blocks if it is in device
    /// memory.
    void fetch_buffer(const Buffer& buffer, void* out) const {
        if constexpr (has_device_buffers) {
            backend_.fetch(buffer, out);
        } else {
            std::memcpy(out, buffer.data, buffer.bytes());
        }
    }

    /// Copies elements from host memory to one of for_each_buffer()'s buffers. Blocks if it is in device
    /// memory.
    void store_buffer(const void* from, const Buffer& buffer) {
        if constexpr (has_device_buffers) {
            backend_.store(from, buffer);
        } else {
            std::memcpy(buffer.data, from, buffer.bytes());
        }
    }

    /// Returns the number of parameters: a weight and a bias count as two.
    [[nodiscard]] std::size_t parameter_count() const noexcept { return parameters_.size(); }

    /// Makes subsequent gradients of parameter `i` be written to `storage`. Releases the network's own memory
    /// for this gradient. `storage` must outlive the network or the next call for `i`, unless `owner` keeps
    /// it alive. `storage` has ParameterRef::count elements and should be aligned to 64 bytes. Throws
    /// ArgumentError if its size differs.
    void set_gradient_storage(std::size_t i, Elements storage, std::shared_ptr<const void> owner = nullptr) {
        Parameter& parameter = parameter_at(i);
        require_count(i, "the gradient storage", storage.size(), parameter.count());
        parameter.set_gradient_storage(storage);
        gradient_owners_.resize(parameters_.size());
        gradient_owners_[i] = std::move(owner);
    }

    /// Moves the values of parameter `i` to `storage`, for example memory that a ShardedOptimizer updates.
    /// `storage` must stay valid until the network is destroyed or the next call for `i` has returned; if it
    /// has an owner, the network keeps a copy of it. It must have ParameterRef::count elements, otherwise
    /// throws ArgumentError, and should be aligned to 64 bytes.
    void set_value_storage(std::size_t i, Elements storage, std::shared_ptr<const void> owner = nullptr) {
        Parameter& parameter = parameter_at(i);
        require_count(i, "the value storage", storage.size(), parameter.count());
        parameter.set_value_storage(storage);
        value_owners_.resize(parameters_.size());
        value_owners_[i] = std::move(owner);
    }

    /// Returns the values of parameter `i`, row-major in its shape, whatever the backend's layout.
    [[nodiscard]] std::vector<Scalar> parameter_values(std::size_t i) {
        return to_row_major(i, parameter_at(i).values());
    }

    /// Returns the gradient of parameter `i`, row-major in its shape, whatever the backend's layout.
    [[nodiscard]] std::vector<Scalar> parameter_gradient(std::size_t i) {
        return to_row_major(i, parameter_at(i).gradient());
    }

    /// Sets the values of parameter `i` from row-major elements of its shape. Throws ArgumentError if the
    /// number of elements differs.
    void set_parameter_values(std::size_t i, std::span<const Scalar> values) {
        from_row_major(i, values, parameter_at(i).values());
    }

    /// Returns elements that have the layout of parameter `i`, such as an optimizer's momentum, row-major.
    /// Throws ArgumentError if there are not ParameterRef::count of them.
    [[nodiscard]] std::vector<Scalar> to_row_major(std::size_t i, Elements elements) {
        std::vector<Scalar> values(element_count(parameter_at(i).shape()));
        to_row_major(i, elements, values);
        return values;
    }

    /// Writes them to `out`. Throws ArgumentError if the numbers of elements differ from the parameter's.
    void to_row_major(std::size_t i, Elements elements, std::span<Scalar> out) {
        const Parameter& parameter = parameter_at(i);
        require_count(i, "elements", elements.size(), parameter.count());
        require_count(i, "the values", out.size(), element_count(parameter.shape()));
        parameter.to_row_major(elements, out);
    }

    /// Converts row-major values to elements that have the layout of parameter `i`. Throws ArgumentError if
    /// the numbers of values or elements differ from the parameter's.
    void from_row_major(std::size_t i, std::span<const Scalar> values, Elements elements) {
        const Parameter& parameter = parameter_at(i);
        require_count(i, "the values", values.size(), element_count(parameter.shape()));
        require_count(i, "elements", elements.size(), parameter.count());
        parameter.from_row_major(values, elements);
    }

    /// Returns the number of forward passes in training, on which the elements depend that dropout drops.
    [[nodiscard]] std::int64_t training_passes() const noexcept { return next_step_; }

    /// Continues from a number that training_passes() returned.
    void set_training_passes(std::int64_t passes) noexcept { next_step_ = passes; }

    /// Makes all parameters row-major, where the backend would choose another layout for this machine. The
    /// gradients are lost. agree_on_layouts() does this if the layouts of ranks differ. Throws ArgumentError
    /// if storage was set for a parameter whose layout would change.
    void use_row_major_parameters() {
        for (Parameter* parameter : parameters_) parameter->make_row_major();
        plans_.clear();
        current_ = nullptr;
        has_forward_ = false;
    }

    /// Returns the running statistics of a batch norm of the graph, on backends that have them in host
    /// memory.
    [[nodiscard]] RunningStatistics<Scalar>& statistics(Value norm)
        requires(!has_device_buffers)
    {
        for (const auto& made : norms_)
            if (made->node == norm.node) return made->statistics;
        throw ArgumentError(
            dptk::detail::text("Network: operation ", norm.node, " is not a BatchNorm2d of this network"));
    }

    /// Returns the shape of one sample, without the batch dimension.
    [[nodiscard]] const Shape& input_shape() const noexcept { return graph_.input_shape(); }

    /// Returns the shape of one sample's output, without the batch dimension.
    [[nodiscard]] const Shape& output_shape() const noexcept { return graph_.output_shape(); }

    /// Returns the backend that computes the network.
    [[nodiscard]] const Backend& backend() const noexcept { return backend_; }

  private:
    using Layout = typename Backend::Layout;
    using Memory = typename Backend::Memory;
    using Parameter = typename Backend::Parameter;
    using Layer = typename Backend::Layer;
    using OperationPlan = nn::OperationPlan<Layout, Memory>;

    using Sum = decltype(std::declval<Backend&>().plan_sum(
        std::declval<const Memory&>(), std::declval<const Memory&>(), std::declval<const Memory&>()));
    using Store = decltype(std::declval<Backend&>().plan_store(std::declval<const Memory&>()));

    /// An operation for one batch size, with its memory.
    struct Step {
        std::unique_ptr<OperationPlan> plan;
        Arguments<Memory> arguments;
        std::vector<Sum> sums;
    };

    struct BoundMemory {
        Memory memory;
        std::size_t offset;
    };

    /// What the network does for one batch size. Steps begin with operation 1.
    struct Plan {
        std::vector<Step> steps;
        std::vector<BoundMemory> bound;      ///< Memory at offsets from `base`.
        std::vector<Memory> input_views;     ///< What load() sets to the input.
        std::vector<Memory> gradient_views;  ///< What load() sets to the output's gradient.
        std::optional<Store> store_output;
        std::optional<Store> store_input_gradient;
        std::size_t bytes = 0;
        std::byte* base = nullptr;
    };

    /// Returns what the backend needs during a pass.
    [[nodiscard]] auto pass_scope() const {
        if constexpr (requires { backend_.pass_scope(); }) {
            return backend_.pass_scope();
        } else {
            return nullptr;
        }
    }

    [[nodiscard]] static Device device_of(std::span<const Scalar>) { return {}; }

    [[nodiscard]] static Device device_of(const DeviceSpan<Scalar>& elements) { return elements.device(); }

    void make_layers(std::uint64_t seed) {
        Generator generator(seed);
        std::vector<Layout> layouts{backend_.nominal_input(graph_)};
        layers_.resize(1);
        for (std::size_t node = 1; node < graph_.nodes().size(); ++node) {
            const GraphNode& described = graph_.nodes()[node];
            const std::vector<Layout> inputs = at_inputs(layouts, node);
            RunningStatistics<Scalar>* statistics = nullptr;
            if (std::holds_alternative<BatchNorm2d>(described.operation)) {
                const std::size_t channels = described.shape[0];
                norms_.push_back(std::make_unique<Norm>(
                    Norm{node, {std::vector<Scalar>(channels, 0), std::vector<Scalar>(channels, 1), 0}, {}}));
                statistics = &norms_.back()->statistics;
            }
            std::vector<std::vector<Scalar>> initial;
            const std::size_t first = structure_.parameters_end[node - 1];
            for (std::size_t p = first; p < structure_.parameters_end[node]; ++p)
                initial.push_back(detail::first_values<Scalar>(structure_.parameters[p], generator));
            layers_.push_back(
                backend_.make_layer({.info = {.operation = described.operation,
                                              .inputs = graph_.input_shapes(described),
                                              .output = described.shape,
                                              .node = node,
                                              .feeds_only_linear = structure_.feeds_only_linear[node],
                                              .relu = structure_.relu[node],
                                              .label = structure_.labels[node]},
                                     .inputs = inputs,
                                     .before = graph_.nodes()[described.inputs[0]].operation,
                                     .statistics = statistics,
                                     .initial = std::move(initial)}));
            for (Parameter* parameter : layers_.back()->parameters()) parameters_.push_back(parameter);
            layouts.push_back(layers_.back()->nominal_output());
        }
    }

    template <class Element>
    [[nodiscard]] std::vector<Element> at_inputs(const std::vector<Element>& all, std::size_t node) const {
        std::vector<Element> inputs;
        for (const std::size_t input : graph_.nodes()[node].inputs) inputs.push_back(all[input]);
        return inputs;
    }

    Plan& plan_for(std::size_t n) {
        auto found = plans_.find(n);
        if (found == plans_.end()) found = plans_.emplace(n, make_plan(n)).first;
        Plan& plan = found->second;
        std::byte* const base = backend_.reserve(plan.bytes);
        if (base != plan.base) {
            for (BoundMemory& bound : plan.bound) backend_.bind(bound.memory, base + bound.offset);
            plan.base = base;
        }
        return plan;
    }

    /// Plans all operations, then their memory, and makes handles to it.
    [[nodiscard]] Plan make_plan(std::size_t n) {
        const std::size_t count = graph_.nodes().size();
        Plan plan;
        plan.steps.resize(count - 1);
        std::vector<Layout> layouts{backend_.input_layout(graph_, n)};
        for (std::size_t node = 1; node < count; ++node) {
            plan.steps[node - 1].plan = layers_[node]->plan(n, at_inputs(layouts, node));
            layouts.push_back(plan.steps[node - 1].plan->output);
        }
        std::vector<Layout> gradient_layouts(count);
        std::vector<bool> has_gradient(count);
        std::vector<std::vector<Layout>> contributed(count);
        gradient_layouts.back() = backend_.output_gradient_layout(layouts.back());
        for (std::size_t node = count; node-- > 1;) {
            contributed[node] = plan.steps[node - 1].plan->plan_backward(gradient_layouts[node]);
            for (std::size_t k = 0; k < contributed[node].size(); ++k) {
                const std::size_t input = graph_.nodes()[node].inputs[k];
                if (!has_gradient[input]) gradient_layouts[input] = contributed[node][k];
                has_gradient[input] = true;
            }
        }
        const detail::MemoryPlan memory = plan_memory(plan, layouts, contributed);
        bind_plan(plan, memory, layouts, gradient_layouts, contributed);
        return plan;
    }

    [[nodiscard]] detail::MemoryPlan plan_memory(const Plan& plan, const std::vector<Layout>& layouts,
                                                 const std::vector<std::vector<Layout>>& contributed) {
        std::vector<detail::MemoryNode> nodes(layouts.size());
        for (std::size_t node = 0; node < nodes.size(); ++node) {
            nodes[node].output_bytes = backend_.bytes(layouts[node]);
            if (node == 0) continue;
            const OperationPlan& operation = *plan.steps[node - 1].plan;
            nodes[node].inputs = graph_.nodes()[node].inputs;
            nodes[node].use = operation.use;
            for (const Layout& layout : contributed[node])
                nodes[node].gradient_bytes.push_back(backend_.bytes(layout));
            for (const auto& workspace : operation.workspaces)
                nodes[node].workspaces.push_back({workspace.bytes, workspace.use});
        }
        return detail::plan_memory(
            nodes, Backend::copies_tensors ? detail::TensorMemory::copied : detail::TensorMemory::external);
    }

    void bind_plan(Plan& plan, const detail::MemoryPlan& memory, const std::vector<Layout>& layouts,
                   const std::vector<Layout>& gradient_layouts,
                   const std::vector<std::vector<Layout>>& contributed) {
        const auto make = [&](const Layout& layout, std::size_t offset, std::vector<Memory>& views) {
            Memory made = backend_.make_memory(layout);
            if (offset == detail::MemoryPlan::external) {
                views.push_back(made);
            } else {
                plan.bound.push_back({made, offset});
            }
            return made;
        };
        std::vector<Memory> values, gradients;  // by operation; gradients are the complete ones
        for (std::size_t node = 0; node < layouts.size(); ++node) {
            values.push_back(make(layouts[node], memory.values[node], plan.input_views));
            gradients.push_back(make(gradient_layouts[node], memory.gradients[node], plan.gradient_views));
        }
        if constexpr (Backend::copies_tensors) {
            plan.input_views = {values.front()};
            plan.gradient_views = {gradients.back()};
        }
        for (std::size_t node = 1; node < layouts.size(); ++node) {
            Step& step = plan.steps[node - 1];
            step.arguments.inputs = at_inputs(values, node);
            step.arguments.output = values[node];
            step.arguments.output_gradient = gradients[node];
            for (std::size_t k = 0; k < contributed[node].size(); ++k) {
                const detail::MemoryPlan::Contribution& contribution = memory.contributions[node][k];
                const Layout& layout = contributed[node][k];
                const std::size_t input = graph_.nodes()[node].inputs[k];
                Memory written = make(layout, contribution.offset, plan.gradient_views);
                step.arguments.input_gradients.push_back(written);
                if (!contribution.is_added) continue;
                const Memory previous =
                    make(gradient_layouts[input], contribution.previous, plan.gradient_views);
                const Memory sum = make(gradient_layouts[input], contribution.sum, plan.gradient_views);
                step.sums.push_back(backend_.plan_sum(previous, written, sum));
            }
            for (std::size_t w = 0; w < step.plan->workspaces.size(); ++w)
                plan.bound.push_back({step.plan->workspaces[w].memory, memory.workspaces[node][w]});
        }
        plan.store_output.emplace(backend_.plan_store(values.back()));
        plan.store_input_gradient.emplace(backend_.plan_store(gradients.front()));
        plan.bytes = memory.bytes;
    }

    /// The state of a batch norm.
    struct Norm {
        std::size_t node;
        RunningStatistics<Scalar> statistics;
        SavedValues<Scalar> saved;            // for empty batches
        std::vector<NamedBuffer> named = {};  // for for_each_buffer()

        [[nodiscard]] HostCall<Scalar> empty_call(const std::vector<Shape>& shapes, const Pass& pass) {
            static constexpr const Scalar* no_input = nullptr;
            return {.shapes = shapes,
                    .inputs = {&no_input, 1},
                    .pass = pass,
                    .saved = saved,
                    .statistics = &statistics};
        }
    };

    /// Returns the running mean, variance and number of batches.
    [[nodiscard]] std::array<Buffer, 3> buffers_of(Norm& norm) const {
        if constexpr (has_device_buffers) {
            return layers_[norm.node]->buffers();
        } else {
            return host_buffers(norm.statistics);
        }
    }

    [[nodiscard]] static std::array<Buffer, 3> host_buffers(RunningStatistics<Scalar>& statistics) {
        return {Buffer{statistics.mean.data(), statistics.mean.size(), dtype_of<Scalar>},
                Buffer{statistics.variance.data(), statistics.variance.size(), dtype_of<Scalar>},
                Buffer{&statistics.batch_count, 1, DType::i64}};
    }

    /// Without samples there is nothing to compute, except that other ranks wait in the batch norms that are
    /// synchronized.
    void forward_empty() {
        if (mode_ != Mode::train) return;
        for (const auto& norm : norms_) {
            const GraphNode& node = graph_.nodes()[norm->node];
            const auto& operation = std::get<BatchNorm2d>(node.operation);
            if (!operation.is_synchronized || !structure_.trains[norm->node]) continue;
            // Buffers in device memory are copied, since the host updates them here.
            const std::array<Buffer, 3> own = buffers_of(*norm), host = host_buffers(norm->statistics);
            for (std::size_t i = 0; has_device_buffers && i < own.size(); ++i)
                fetch_buffer(own[i], host[i].data);
            reference::forward(operation, norm->empty_call({node.shape}, pass_));
            for (std::size_t i = 0; has_device_buffers && i < own.size(); ++i)
                store_buffer(host[i].data, own[i]);
        }
    }

    /// All gradients are zero.
    template <class OnReady>
    void backward_empty(OnReady&& on_ready, InputGradient input_gradient) {
        for (Parameter* parameter : parameters_) parameter->zero_gradient();
        std::size_t last = parameters_.size();
        for (std::size_t i = norms_.size(); i-- > 0 && pass_.mode == Mode::train;) {
            const GraphNode& node = graph_.nodes()[norms_[i]->node];
            const auto& operation = std::get<BatchNorm2d>(node.operation);
            if (!operation.is_synchronized || !structure_.trains[norms_[i]->node]) continue;
            const std::size_t first = structure_.parameters_end[norms_[i]->node - 1];
            report_down_to(first, last, on_ready);
            last = first;
            // As in backward().
            if (!structure_.trains_inputs[norms_[i]->node] && input_gradient == InputGradient::skip) continue;
            reference::backward_inputs(operation, norms_[i]->empty_call({node.shape}, pass_));
        }
        report_down_to(0, last, on_ready);
    }

    /// Calls on_ready for the parameters in [first, last) that are not frozen, the last one first.
    template <class OnReady>
    void report_down_to(std::size_t first, std::size_t last, OnReady& on_ready) const {
        while (last-- > first)
            if (!is_frozen_[last]) on_ready(last);
    }

    /// Returns the pass as an operation sees it: batch norms that are frozen are in Mode::evaluate.
    [[nodiscard]] const Pass& pass_of(std::size_t node) const noexcept {
        const bool is_norm = std::holds_alternative<BatchNorm2d>(graph_.nodes()[node].operation);
        return is_norm && !structure_.trains[node] ? evaluation_pass_ : pass_;
    }

    /// Throws unless the tensor has the shape [n, ...sample].
    static void require_shape(const char* what, const Tensor& tensor, std::size_t n, const Shape& sample) {
        const std::span<const std::size_t> found = tensor.shape();
        if (!found.empty() && found[0] == n && dptk::detail::equal(found.subspan(1), sample)) return;
        Shape expected{n};
        expected.insert(expected.end(), sample.begin(), sample.end());
        throw ArgumentError(dptk::detail::text("Network: expected ", what, " of shape ",
                                               dptk::detail::shape_text(expected), ", found ",
                                               dptk::detail::shape_text(found)));
    }

    void require_count(std::size_t i, const char* what, std::size_t found, std::size_t expected) const {
        if (found != expected)
            throw ArgumentError(dptk::detail::text("Network: ", what, " for parameter ",
                                                   structure_.parameters[i].name, ": expected ", expected,
                                                   " elements, found ", found));
    }

    Parameter& parameter_at(std::size_t i) const {
        if (i >= parameters_.size())
            throw ArgumentError(dptk::detail::text("Network: parameter index ", i,
                                                   " is out of range: there are ", parameters_.size(),
                                                   " parameters"));
        return *parameters_[i];
    }

    Graph graph_;
    Backend backend_;
    detail::NetworkStructure structure_;
    std::vector<std::unique_ptr<Layer>> layers_;  // by operation; that of the input is null
    std::vector<Parameter*> parameters_;
    std::vector<ParameterRef> refs_;                            // for for_each_parameter()
    std::vector<std::shared_ptr<const void>> gradient_owners_;  // by parameter
    std::vector<std::shared_ptr<const void>> value_owners_;     // by parameter
    std::vector<std::unique_ptr<Norm>> norms_;
    Mode mode_ = Mode::train;
    Pass pass_;  // that of the last forward
    Pass evaluation_pass_{.mode = Mode::evaluate};
    std::vector<bool> is_frozen_;  // by parameter
    std::int64_t next_step_ = 0;
    std::map<std::size_t, Plan> plans_;  // by batch size
    Plan* current_ = nullptr;            // that of the last forward; null if the batch was empty
    bool has_forward_ = false;
    Tensor output_;
    Tensor input_gradient_;
};

}  // namespace DPTK_NAMESPACE::nn
