/// Converts between row-major tensors in host memory and the activations of a network on oneDNN.
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <vector>

#include "dptk/core/config.hpp"
#include "dptk/nn/cpu/memory.hpp"
#include "dptk/nn/cpu/reorder.hpp"
#include "dptk/core/tensor.hpp"

namespace DPTK_NAMESPACE::nn::cpu {

/// Wraps tensors as activations and copies activations to tensors. Caches oneDNN's memory objects and
/// converters for subsequent steps.
class HostTensors {
  public:
    /// Wraps a tensor as an activation. The activation is not overwritable, so the layers only read it.
    Activation wrap(const Context& context, const Tensor<float>& tensor);

    /// Writes the elements of an activation to `out`.
    void store(const Context& context, const Activation& activation, std::span<float> out);

  private:
    struct Wrapped {
        const float* data = nullptr;
        Shape shape;
        dnnl::memory memory;
    };

    struct ToRows {
        dnnl::memory from;
        Converter converter;
    };

    Converter& converter_for(const Context& context, const dnnl::memory& from);

    /// The cache of wrap() for 8 tensors. Training wraps only a few: the batches that a loader fills in
    /// turn, and a gradient.
    std::array<Wrapped, 8> wrapped_;
    std::size_t next_ = 0;
    /// One converter per source layout.
    std::vector<ToRows> to_rows_;
};

}  // namespace DPTK_NAMESPACE::nn::cpu

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/nn/cpu/host_tensors.ipp"
#endif
