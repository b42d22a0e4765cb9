#pragma once

#include "dptk/comm/detail/device_call.hpp"

#include "dptk/comm/algorithms/local_reduce.hpp"
#include "dptk/comm/detail/root.hpp"

namespace DPTK_NAMESPACE::detail {

DPTK_INLINE std::string DeviceCall::description() const {
    const Buffer& input = inputs[0];
    std::string out =
        text(dptk::describe({.verb = verb, .input = input, .reduction = reduction, .root = root}), " with ",
             devices(), " devices of ", input.bytes(), " bytes");
    if (has_root(verb)) out += text(", root device ", root_device);
    return out;
}

DPTK_INLINE StreamRef DeviceCall::stream(std::size_t device) const {
    return streams.empty() ? StreamRef() : streams[device];
}

DPTK_INLINE std::vector<int> DeviceCall::device_indices() const {
    std::vector<int> indices;
    for (const Buffer& input : inputs) indices.push_back(input.device.index);
    return indices;
}

DPTK_INLINE Buffer DeviceCall::sum_like() const {
    Buffer sum = inputs[0];
    if (needs_wide_accumulation(sum.dtype, reduction)) sum.dtype = accumulation_dtype(sum.dtype);
    return sum;
}

[[nodiscard]] DPTK_INLINE bool same_elements(const Buffer& a, const Buffer& b) noexcept {
    return a.dtype == b.dtype && a.element_size() == b.element_size();
}

/// Returns how the devices' buffers differ; empty if they have the same dtype and count.
[[nodiscard]] DPTK_INLINE std::string unequal_devices(const std::vector<Buffer>& buffers) {
    for (std::size_t i = 1; i < buffers.size(); ++i) {
        if (same_elements(buffers[0], buffers[i]) && buffers[0].count == buffers[i].count) continue;
        return text("device ", i, " has ", buffers[i].count, " x ", dtype_name(buffers[i].dtype),
                    ", but device 0 has ", buffers[0].count, " x ", dtype_name(buffers[0].dtype));
    }
    return {};
}

/// Returns why the devices of the buffers are invalid; empty if they are valid.
[[nodiscard]] DPTK_INLINE std::string mixed_memory(const DeviceCall& call) {
    for (std::size_t i = 0; i < call.devices(); ++i) {
        if (call.inputs[i].device != call.outputs[i].device)
            return text("the input of device ", i, " is on ", device_name(call.inputs[i].device),
                        ", but its output is on ", device_name(call.outputs[i].device));
        if (call.inputs[i].on_device() != call.on_devices())
            return "expected all buffers in host memory or all of them on devices, got both";
        for (std::size_t other = 0; other < i && call.on_devices(); ++other) {
            if (call.inputs[other].device == call.inputs[i].device)
                return text("devices ", other, " and ", i, " are both ", device_name(call.inputs[i].device),
                            ": expected different devices");
        }
    }
    return {};
}

/// Returns why the reduction is not defined for the dtype; empty if it is.
[[nodiscard]] DPTK_INLINE std::string reduction_problem(DType dtype, const Reduction& reduction) {
    try {
        check_reduction(dtype, reduction);
        return {};
    } catch (const ArgumentError& error) {
        return error.what();
    }
}

DPTK_INLINE std::string problem_with(const DeviceCall& call, int size) {
    if (call.inputs.empty() && call.outputs.empty()) return "expected at least 1 device, got 0";
    if (call.inputs.size() != call.outputs.size())
        return text("expected one output per input, got ", call.inputs.size(), " inputs and ",
                    call.outputs.size(), " outputs");
    for (const auto* buffers : {&call.inputs, &call.outputs}) {
        if (std::string problem = unequal_devices(*buffers); !problem.empty()) return problem;
    }
    const Buffer& in = call.inputs[0];
    const Buffer& out = call.outputs[0];
    if (!call.streams.empty() && call.streams.size() != call.devices())
        return text("expected one stream per device, got ", call.streams.size(), " streams for ",
                    call.devices(), " devices");
    if (std::string problem = mixed_memory(call); !problem.empty()) return problem;
    const std::size_t all = call.devices() * static_cast<std::size_t>(size);
    const std::size_t given = call.verb == Verb::all_gather ? in.count * all : in.count;
    const std::size_t taken = call.verb == Verb::reduce_scatter ? out.count * all : out.count;
    if (!same_elements(in, out) || given != taken)
        return text("inputs of ", in.count, " x ", dtype_name(in.dtype), " and outputs of ", out.count, " x ",
                    dtype_name(out.dtype), " do not match over ", all, " devices: expected one dtype and ",
                    call.verb == Verb::all_gather       ? "output count = input count x devices"
                    : call.verb == Verb::reduce_scatter ? "input count = output count x devices"
                                                        : "equal counts");
    if (std::string problem = root_problem(call.root, size); !problem.empty()) return problem;
    if (call.root_device < 0 || call.root_device >= static_cast<int>(call.devices()))
        return text("root device ", call.root_device, " is outside [0, ", call.devices() - 1, "]");
    return reduces(call.verb) ? reduction_problem(in.dtype, call.reduction) : std::string();
}

}  // namespace DPTK_NAMESPACE::detail
