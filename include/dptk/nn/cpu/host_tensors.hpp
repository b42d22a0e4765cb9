/// Row-major tensors in host memory, on their way into a network on oneDNN and out of it.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <span>
#include <vector>

#include "dptk/nn/cpu/memory.hpp"
#include "dptk/nn/cpu/onednn.hpp"
#include "dptk/nn/cpu/reorder.hpp"
#include "dptk/nn/tensor.hpp"

namespace dptk::nn::cpu {

/// What it makes for that is kept for the next step.
class HostTensors {
  public:
    /// A tensor as an activation. It is not overwritable, so the layers only read it.
    Activation wrap(const Context& context, const Tensor<float>& tensor) {
        auto known = std::ranges::find_if(wrapped_, [&](const Wrapped& wrapped) {
            return wrapped.data == tensor.data() && wrapped.shape == tensor.shape();
        });
        if (known == wrapped_.end()) {
            known = wrapped_.begin() + static_cast<std::ptrdiff_t>(next_++ % wrapped_.size());
            const Layout layout = row_major_layout({tensor.shape().begin(), tensor.shape().end()});
            *known = {tensor.data(), tensor.shape(),
                      dnnl::memory(layout, context.engine, const_cast<float*>(tensor.data()))};
        }
        return {.memory = known->memory, .overwritable = false};
    }

    /// Writes the elements of an activation to `out`.
    void store(const Context& context, const Activation& activation, std::span<float> out) {
        const dnnl::memory& rows = converter_for(context, activation.memory)(activation.memory);
        std::memcpy(out.data(), rows.get_data_handle(), out.size_bytes());
    }

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

    Converter& converter_for(const Context& context, const dnnl::memory& from) {
        for (ToRows& known : to_rows_)
            if (same_layout(known.from, from)) return known.converter;
        const Layout layout = from.get_desc();
        to_rows_.push_back({from, Converter(context, layout, row_major_layout(dims_of(layout)))});
        return to_rows_.back().converter;
    }

    /// The latest ones. A training has a handful: the batches that a loader fills in turn, and a gradient.
    std::array<Wrapped, 8> wrapped_;
    std::size_t next_ = 0;
    /// One for each layout, of which there are few.
    std::vector<ToRows> to_rows_;
};

}  // namespace dptk::nn::cpu
