/// Cpu, the backend for networks on the CPU with oneDNN, in f32 and in the layouts that are fastest on the
/// processor, mostly blocked ones that oneDNN chooses. Primitives are created once for each batch size.
/// Parameters keep one layout, which depends only on the processor and the number of threads.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "dptk/control/process/signal_delay.hpp"
#include "dptk/core/config.hpp"
#include "dptk/core/tensor.hpp"
#include "dptk/nn/backend.hpp"
#include "dptk/nn/cpu/layer.hpp"
#include "dptk/nn/cpu/onednn.hpp"
#include "dptk/nn/cpu/parameter.hpp"
#include "dptk/nn/cpu/primitive.hpp"
#include "dptk/nn/graph.hpp"
#include "dptk/nn/precision.hpp"

namespace DPTK_NAMESPACE::nn {

/// Options of Cpu.
struct CpuOptions {
    Precision precision = Precision::fp32;  ///< What computes matrix products and convolutions.
};

/// The backend for `Network<Cpu>`. Every oneDNN error becomes a BackendError that names the operation.
/// Operations that oneDNN lacks are computed in plain loops. Signal handlers do not run while a network
/// computes, but right after: see SignalDelay. Unlike in PyTorch and the reference backend,
/// ReLU and MaxPool2d do not always propagate NaN: oneDNN mostly replaces NaN by a number.
class Cpu {
  public:
    using Scalar = float;
    using Tensor = dptk::Tensor<float>;
    using Elements = std::span<float>;
    using Layout = cpu::Layout;
    using Memory = dnnl::memory;
    using Parameter = cpu::Parameter;
    using Layer = cpu::Layer;

    /// Layouts of parameters are chosen for this typical batch size, so that they do not depend on the
    /// batch sizes that the network is used with.
    static constexpr std::size_t nominal_batch = 32;

    static constexpr bool copies_tensors = false;

    /// Throws ArgumentError for bf16 if oneDNN may not use AVX512_BF16.
    explicit Cpu(const CpuOptions& options = {});

    [[nodiscard]] bool fuses_relu(const Operation& operation) const;

    [[nodiscard]] Layout nominal_input(const Graph& graph) const {
        return input_layout(graph, nominal_batch);
    }

    [[nodiscard]] Layout input_layout(const Graph& graph, std::size_t batch) const {
        return cpu::translate_errors(
            "input", [&] { return cpu::row_major_layout(cpu::dims_of_batch(batch, graph.input_shape())); });
    }

    [[nodiscard]] Layout output_gradient_layout(const Layout& output) const {
        return cpu::row_major_layout(cpu::dims_of(output));
    }

    std::unique_ptr<Layer> make_layer(const cpu::Request& request) {
        return cpu::translate_errors(request.info.label,
                                     [&] { return std::make_unique<cpu::Layer>(context_, request); });
    }

    /// Signals wait during each pass. See SignalDelay.
    [[nodiscard]] SignalDelay pass_scope() const noexcept { return {}; }

    std::byte* reserve(std::size_t bytes) { return memory_.reserve(bytes); }

    [[nodiscard]] std::size_t bytes(const Layout& layout) const { return layout.get_size(); }

    [[nodiscard]] Memory make_memory(const Layout& layout) const { return cpu::unbound(context_, layout); }

    void bind(Memory& memory, std::byte* address) const { cpu::rebind_memory(memory, address); }

    /// The network only reads memory that is bound to tensors.
    void load(const Tensor& tensor, Memory& memory) const {
        cpu::rebind_memory(memory, const_cast<float*>(tensor.data()));
    }

    [[nodiscard]] auto plan_store(const Memory& memory) const {
        const Memory to = cpu::unbound(context_, cpu::row_major_layout(cpu::dims_of(memory.get_desc())));
        return [to, copy = cpu::reorder(context_, memory, to)](Tensor& tensor) mutable {
            cpu::rebind_memory(to, tensor.data());
            cpu::translate_errors("output", [&] { copy.run(); });
        };
    }

    [[nodiscard]] auto plan_sum(const Memory& a, const Memory& b, const Memory& sum) const {
        const auto described = cpu::describe_sum(context_.engine, sum.get_desc(), a.get_desc(), b.get_desc());
        cpu::Primitive add(context_, described,
                           {{DNNL_ARG_MULTIPLE_SRC, a}, {DNNL_ARG_MULTIPLE_SRC + 1, b}, {DNNL_ARG_DST, sum}});
        return [add]() mutable { cpu::translate_errors("sum of gradients", [&] { add.run(); }); };
    }

  private:
    cpu::Context context_;
    AlignedArray<std::byte> memory_;
};

}  // namespace DPTK_NAMESPACE::nn

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/nn/cpu/backend.ipp"
#endif
