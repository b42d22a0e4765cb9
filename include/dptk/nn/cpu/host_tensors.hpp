/// Row-major tensors in host memory, on their way into a network on oneDNN and out of it.
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <vector>

#include "dptk/core/config.hpp"
#include "dptk/nn/cpu/memory.hpp"
#include "dptk/nn/cpu/reorder.hpp"
#include "dptk/nn/tensor.hpp"

namespace DPTK_NAMESPACE::nn::cpu {

/// What it makes for that is kept for the next step.
class HostTensors {
  public:
    /// A tensor as an activation. It is not overwritable, so the layers only read it.
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

    /// The latest ones. A training has a handful: the batches that a loader fills in turn, and a gradient.
    std::array<Wrapped, 8> wrapped_;
    std::size_t next_ = 0;
    /// One for each layout, of which there are few.
    std::vector<ToRows> to_rows_;
};

}  // namespace DPTK_NAMESPACE::nn::cpu

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/nn/cpu/host_tensors.ipp"
#endif
