#pragma once

#include "dptk/nn/cpu/backend.hpp"

#include <memory>
#include <variant>

#include "dptk/nn/cpu/batch_norm.hpp"

namespace DPTK_NAMESPACE::nn {

DPTK_INLINE bool Cpu::fuses_relu(const Operation& operation) const {
    return std::holds_alternative<Linear>(operation) || std::holds_alternative<Conv2d>(operation) ||
           std::holds_alternative<Add>(operation) || cpu::is_local_norm(operation);
}

DPTK_INLINE cpu::Layout Cpu::input_layout(const Graph& graph, std::size_t batch) const {
    return cpu::translate_errors(
        "input", [&] { return cpu::row_major_layout(cpu::dims_of_batch(batch, graph.input_shape())); });
}

DPTK_INLINE cpu::Layout Cpu::output_gradient_layout(const Layout& output) const {
    return cpu::row_major_layout(cpu::dims_of(output));
}

DPTK_INLINE std::unique_ptr<cpu::Layer> Cpu::make_layer(const cpu::Request& request) {
    return cpu::translate_errors(request.info.label,
                                 [&] { return std::make_unique<cpu::Layer>(context_, request); });
}

}  // namespace DPTK_NAMESPACE::nn
