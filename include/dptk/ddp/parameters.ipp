#pragma once

#include "dptk/ddp/parameters.hpp"

namespace DPTK_NAMESPACE {

DPTK_INLINE void ParameterSink::operator()(ParameterRef parameter) {
    if (parameter.name.empty()) parameter.name = next_name();
    parameters_.push_back(std::move(parameter));
}

DPTK_INLINE std::string ParameterSink::next_name() const {
    return path_.empty() ? detail::text("[", parameters_.size(), "]") : path_;
}

DPTK_INLINE void ParameterSink::add(const ArrayRef& array, std::size_t run) {
    if (run == array.elements.count) return add_piece(next_name(), array.elements, array.shape, array.layout);
    const std::string whole = next_name();
    for (std::size_t i = 0; i < array.elements.count / run; ++i)
        add_piece(detail::text(whole, ".run[", i, "]"), array.piece(i * run, run), {run}, array.layout);
}

DPTK_INLINE void ParameterSink::add_piece(std::string name, const Buffer& elements,
                                          std::vector<std::size_t> shape, std::uint64_t layout) {
    ParameterRef parameter;
    parameter.name = std::move(name);
    parameter.shape = std::move(shape);
    parameter.dtype = elements.dtype;
    parameter.device = elements.device;
    parameter.count = elements.count;
    parameter.value = elements.data;
    parameter.layout = layout;
    parameters_.push_back(std::move(parameter));
}

DPTK_INLINE void ParameterSink::check_compatible(const ArrayRef& value, const ArrayRef& gradient) const {
    const std::string name = next_name();
    if (gradient.elements.count != value.elements.count) {
        throw ArgumentError(detail::text("parameter ", name, " has ", value.elements.count,
                                         " elements, but its gradient has ", gradient.elements.count));
    }
    detail::check_same_order(name, value, gradient);
    if (gradient.elements.device != value.elements.device) {
        throw ArgumentError(detail::text("parameter ", name, " is on ", device_name(value.elements.device),
                                         ", but its gradient is on ", device_name(gradient.elements.device)));
    }
}

}  // namespace DPTK_NAMESPACE
