#pragma once

#include "dptk/nn/cpu/host_tensors.hpp"

#include <cstring>

#include "dptk/core/detail/algorithms.hpp"
#include "dptk/nn/cpu/onednn.hpp"

namespace DPTK_NAMESPACE::nn::cpu {

DPTK_INLINE Activation HostTensors::wrap(const Context& context, const Tensor<float>& tensor) {
    auto known = dptk::detail::find_if(wrapped_, [&](const Wrapped& wrapped) {
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

DPTK_INLINE void HostTensors::store(const Context& context, const Activation& activation,
                                    std::span<float> out) {
    const dnnl::memory& rows = converter_for(context, activation.memory)(activation.memory);
    std::memcpy(out.data(), rows.get_data_handle(), out.size_bytes());
}

DPTK_INLINE Converter& HostTensors::converter_for(const Context& context, const dnnl::memory& from) {
    for (ToRows& known : to_rows_)
        if (same_layout(known.from, from)) return known.converter;
    const Layout layout = from.get_desc();
    to_rows_.push_back({from, Converter(context, layout, row_major_layout(dims_of(layout)))});
    return to_rows_.back().converter;
}

}  // namespace DPTK_NAMESPACE::nn::cpu
