/// Reference, the backend in plain loops, without dependencies. The f64 version is the standard that tests
/// compare other backends with, and is tested against finite differences itself.
#pragma once

#include <concepts>
#include <cstddef>
#include <memory>
#include <span>

#include "dptk/core/config.hpp"
#include "dptk/core/detail/algorithms.hpp"
#include "dptk/core/tensor.hpp"
#include "dptk/nn/backend.hpp"
#include "dptk/nn/reference/layer.hpp"

namespace DPTK_NAMESPACE::nn {

/// The backend for `Network<Reference<T>>`. It uses one thread, and row-major memory everywhere.
template <std::floating_point T>
class Reference {
  public:
    using Scalar = T;
    using Tensor = dptk::Tensor<T>;
    using Elements = std::span<T>;
    using Layout = reference::Layout;
    using Memory = reference::Memory<T>;
    using Parameter = reference::Parameter<T>;
    using Layer = reference::Layer<T>;

    static constexpr bool copies_tensors = false;

    [[nodiscard]] bool fuses_relu(const Operation& /*operation*/) const { return false; }

    [[nodiscard]] Layout nominal_input(const Graph& /*graph*/) const { return 0; }

    [[nodiscard]] Layout input_layout(const Graph& graph, std::size_t batch) const {
        return batch * element_count(graph.input_shape());
    }

    [[nodiscard]] Layout output_gradient_layout(const Layout& output) const { return output; }

    std::unique_ptr<Layer> make_layer(const LayerRequest<Layout, T>& request) {
        return std::make_unique<Layer>(request);
    }

    std::byte* reserve(std::size_t bytes) { return memory_.reserve(bytes); }

    [[nodiscard]] std::size_t bytes(const Layout& layout) const { return layout * sizeof(T); }

    [[nodiscard]] Memory make_memory(const Layout& layout) const {
        return std::make_shared<std::span<T>>(static_cast<T*>(nullptr), layout);
    }

    void bind(Memory& memory, std::byte* address) const {
        *memory = {reinterpret_cast<T*>(address), memory->size()};
    }

    /// The network only reads memory that is bound to tensors.
    void load(const Tensor& tensor, Memory& memory) const {
        *memory = {const_cast<T*>(tensor.data()), memory->size()};
    }

    [[nodiscard]] auto plan_store(const Memory& memory) const {
        return [memory](Tensor& tensor) { dptk::detail::copy(*memory, tensor.values().begin()); };
    }

    [[nodiscard]] auto plan_sum(const Memory& a, const Memory& b, const Memory& sum) const {
        return [a, b, sum] {
            for (std::size_t i = 0; i < sum->size(); ++i) (*sum)[i] = (*a)[i] + (*b)[i];
        };
    }

  private:
    AlignedArray<std::byte> memory_;
};

}  // namespace DPTK_NAMESPACE::nn
