#pragma once

#include "dptk/ddp/detail/model_table.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <optional>

#include "dptk/control/process/debug.hpp"
#include "dptk/core/detail/algorithms.hpp"
#include "dptk/core/detail/text.hpp"

namespace DPTK_NAMESPACE::detail {

DPTK_INLINE std::vector<bool> ignored_parameters(const std::vector<ParameterRef>& parameters,
                                                 const DistributedDataParallelOptions& options) {
    std::vector<bool> ignored(parameters.size(), false);
    for (const std::string& name : options.parameters_to_ignore) {
        const auto found = detail::find(parameters, name, &ParameterRef::name);
        if (found == parameters.end())
            throw ArgumentError(text("parameters_to_ignore: the model has no parameter ", name),
                                {.parameter = name});
        ignored[static_cast<std::size_t>(found - parameters.begin())] = true;
    }
    return ignored;
}

DPTK_INLINE std::size_t verification_interval(const DistributedDataParallelOptions& options) {
    constexpr std::size_t in_debug_mode = 100;
    return options.verify_parameters_every.value_or(debug_level() == DebugLevel::off ? 0 : in_debug_mode);
}

DPTK_INLINE std::string option_lines(const DistributedDataParallelOptions& options) {
    const auto cap_text = [](const std::optional<double>& cap) {
        return cap ? text(*cap, " MiB") : std::string("default");
    };
    std::string out =
        text("Ready::", options.ready == Ready::marked ? "marked" : "at_synchronize", "\nbucket_cap_mb ",
             cap_text(options.bucket_cap_mb), "\nfirst_bucket_mb ", cap_text(options.first_bucket_mb), "\n");
    const auto add_flag = [&](const char* name, bool value) {
        out += text(name, value ? " true" : " false", "\n");
    };
    add_flag("LossReduction::sum", options.loss_reduction == LossReduction::sum);
    add_flag("find_unused_parameters", options.find_unused_parameters);
    add_flag("static_graph", options.static_graph);
    add_flag("gradient_as_bucket_view", options.gradient_as_bucket_view);
    add_flag("reduce_in_f32", options.reduce_in_f32);
    add_flag("init_sync", options.init_sync);
    add_flag("broadcast_buffers", options.broadcast_buffers);
    out += text("verify_parameters_every ", verification_interval(options), "\n");
    const char* trace = std::getenv("DPTK_TRACE");
    add_flag("DPTK_TRACE", trace != nullptr && *trace != '\0');
    return out;
}

DPTK_INLINE std::string parameter_line(const ParameterRef& parameter, bool ignored) {
    std::string out = text(parameter.name, '\t', ignored ? "ignored " : "", "parameter ", parameter.name,
                           " of ", dtype_name(parameter.dtype), " ", shape_text(parameter.shape));
    const DType gradient = parameter.gradient_buffer().dtype;
    if (gradient != parameter.dtype) out += text(" with gradients of ", dtype_name(gradient));
    out += text(" with ", parameter.count, " elements");
    if (parameter.layout != 0) out += text(" in layout ", parameter.layout);
    return out + "\n";
}

DPTK_INLINE std::string buffer_lines(const std::vector<Buffer>& buffers) {
    std::string out;
    for (std::size_t i = 0; i < buffers.size(); ++i)
        out += text("buffer ", i, " of ", buffers[i].count, " x ", dtype_name(buffers[i].dtype), "\n");
    return out;
}

DPTK_INLINE std::string device_lines(const std::vector<ParameterRef>& parameters,
                                     const std::vector<Buffer>& buffers) {
    std::vector<Device> devices;
    std::string out;
    const auto add = [&](const std::string& what, Device device) {
        if (device.type == DeviceType::cpu) return;
        const auto found = detail::find(devices, device);
        out += text(what, " on device ", found - devices.begin(), " of the model\n");
        if (found == devices.end()) devices.push_back(device);
    };
    for (const ParameterRef& parameter : parameters)
        add(text(parameter.name, "\tparameter ", parameter.name), parameter.device);
    for (std::size_t i = 0; i < buffers.size(); ++i) add(text("buffer ", i), buffers[i].device);
    return out;
}

DPTK_INLINE void check_unchanged(const std::vector<ParameterRef>& before,
                                 const std::vector<ParameterRef>& now) {
    if (now.size() != before.size()) {
        const auto [missing, added] =
            std::mismatch(before.begin(), before.end(), now.begin(), now.end(),
                          [](const ParameterRef& a, const ParameterRef& b) { return a.name == b.name; });
        const bool is_missing = added == now.end();
        const std::string& name = is_missing ? missing->name : added->name;
        throw ArgumentError(text("expected ", before.size(), " parameters, as at construction, got ",
                                 now.size(), ": ", name, is_missing ? " is missing" : " is new"),
                            {.parameter = name});
    }
    for (std::size_t i = 0; i < now.size(); ++i) {
        const auto place = [](const ParameterRef& parameter) {
            const DType gradient = parameter.gradient_buffer().dtype;
            return text(parameter.count, " x ", dtype_name(parameter.dtype),
                        gradient == parameter.dtype ? "" : text(" with gradients of ", dtype_name(gradient)),
                        parameter.device == Device{} ? "" : " on " + device_name(parameter.device));
        };
        const auto form = [](const ParameterRef& parameter) {
            return text("of shape ", shape_text(parameter.shape), " in layout ", parameter.layout);
        };
        const auto fail = [&](const auto& describe) {
            throw ArgumentError(text("parameter ", before[i].name, " was ", describe(before[i]),
                                     " at construction, and is ", describe(now[i]), " now"),
                                {.parameter = before[i].name});
        };
        if (now[i].count != before[i].count || now[i].dtype != before[i].dtype ||
            now[i].gradient_buffer().dtype != before[i].gradient_buffer().dtype ||
            now[i].device != before[i].device)
            fail(place);
        const auto kind = [](const ParameterRef& parameter) {
            return std::string(parameter.lazy_gradient ? "with a lazy gradient" : "without a lazy gradient");
        };
        if (static_cast<bool>(now[i].lazy_gradient) != static_cast<bool>(before[i].lazy_gradient)) fail(kind);
        if (now[i].shape != before[i].shape || now[i].layout != before[i].layout) fail(form);
    }
}

}  // namespace DPTK_NAMESPACE::detail
