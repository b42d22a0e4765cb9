#pragma once

#include "dptk/ddp/parameter_source.hpp"

#include <cstddef>
#include <exception>
#include <string>
#include <string_view>

#include "dptk/core/detail/algorithms.hpp"
#include "dptk/core/detail/device_calls.hpp"

namespace DPTK_NAMESPACE {

DPTK_INLINE std::vector<ParameterRef> ParameterSource::collect() const {
    std::vector<ParameterRef> parameters = visit(values_);
    if (gradients_) attach(parameters, visit(gradients_));
    for (const ParameterRef& parameter : parameters) check(parameter);
    return parameters;
}

DPTK_INLINE std::vector<ParameterRef> ParameterSource::visit(const Visitor& visitor) {
    ParameterSink sink;
    visitor(sink);
    return std::move(sink.parameters_);
}

DPTK_INLINE bool ParameterSource::read_again(std::vector<ParameterRef>& known,
                                             std::vector<detail::ParameterAddresses>& now) {
    using detail::ParameterPart;
    now.resize(known.size());
    try {
        if (!again_.read_again(values_, known, now, gradients_ ? ParameterPart::values : ParameterPart::both))
            return false;
        if (gradients_ && !again_.read_again(gradients_, known, now, ParameterPart::gradients)) return false;
    } catch (const std::exception&) {  // collect() throws it again, unless it comes from reading again
        return false;
    }
    return true;
}

DPTK_INLINE void ParameterSource::check(const ParameterRef& parameter) {
    const auto fail = [&](std::string_view what) {
        throw ArgumentError(detail::text("parameter ", parameter.name, " ", what),
                            {.parameter = parameter.name});
    };
    if (!is_floating(parameter.dtype))
        fail(detail::text("is of ", dtype_name(parameter.dtype), ": expected a floating-point type"));
    if (const DType gradient = parameter.gradient_buffer().dtype; !is_floating(gradient))
        fail(detail::text("has a gradient of ", dtype_name(gradient), ": expected a floating-point type"));
    if (parameter.device.type != DeviceType::cpu && detail::registered_device_calls() == nullptr)
        fail(detail::text("is on ", device_name(parameter.device), ", and ", detail::no_device_memory));
    if (parameter.count == 0) return;
    if (parameter.value == nullptr) fail("has no value");
    if (parameter.gradient == nullptr && !parameter.lazy_gradient) fail("has no gradient");
}

DPTK_INLINE void ParameterSource::check_names(const std::vector<ParameterRef>& values,
                                              const std::vector<ParameterRef>& gradients) {
    // Numbers in brackets are made from positions, or are keys of a map.
    const auto has_name = [](const ParameterRef& parameter) {
        return parameter.name.find_first_not_of("[]-0123456789") != std::string::npos;
    };
    const auto is_positional = [](const std::vector<ParameterRef>& parameters) {
        for (std::size_t i = 0; i < parameters.size(); ++i)
            if (parameters[i].name != detail::text("[", i, "]")) return false;
        return true;
    };
    const auto depth = [](const ParameterRef& parameter) { return detail::count(parameter.name, '['); };
    const bool has_keys = !is_positional(values) && !is_positional(gradients);
    const auto list = [](const std::vector<ParameterRef>& parameters) {
        constexpr std::size_t limit = 8;
        std::string names;
        for (std::size_t i = 0; i < parameters.size() && i < limit; ++i)
            names += (i == 0 ? "" : ", ") + parameters[i].name;
        return names + (parameters.size() > limit ? ", ..." : "");
    };
    for (std::size_t i = 0; i < values.size(); ++i) {
        const ParameterRef& value = values[i];
        const ParameterRef& gradient = gradients[i];
        const bool are_comparable =
            has_name(value) == has_name(gradient) &&
            (has_name(value) || (has_keys && depth(value) == 1 && depth(gradient) == 1));
        if (!are_comparable || value.name == gradient.name) continue;
        throw ArgumentError(detail::text("the values ", list(values), " and the gradients ", list(gradients),
                                         " have different names: ", value.name, " would get the gradient ",
                                         gradient.name));
    }
}

DPTK_INLINE void ParameterSource::attach(std::vector<ParameterRef>& values,
                                         const std::vector<ParameterRef>& gradients) {
    if (values.size() != gradients.size()) {
        throw ArgumentError(
            detail::text("there are ", values.size(), " parameters, but ", gradients.size(), " gradients"));
    }
    check_names(values, gradients);
    for (std::size_t i = 0; i < values.size(); ++i) {
        ParameterRef& value = values[i];
        const ParameterRef& gradient = gradients[i];
        if (value.count != gradient.count)
            throw ArgumentError(detail::text("parameter ", value.name, " has ", value.count,
                                             " elements, but its gradient has ", gradient.count),
                                {.parameter = value.name});
        detail::check_same_order(value.name, value, gradient);
        if (value.device != gradient.device)
            throw ArgumentError(detail::text("parameter ", value.name, " is on ", device_name(value.device),
                                             ", but its gradient is on ", device_name(gradient.device)),
                                {.parameter = value.name});
        value.gradient = gradient.value;
        value.gradient_dtype = gradient.dtype;
    }
}

}  // namespace DPTK_NAMESPACE
