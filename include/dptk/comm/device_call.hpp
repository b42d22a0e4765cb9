/// A collective of processes that work with several devices each, as one rank sees it: its check, and the
/// reduction inside the process that comes before the one between ranks. comm/multi_device.hpp has the verbs.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "dptk/comm/agreement.hpp"
#include "dptk/comm/algorithms/exchange.hpp"
#include "dptk/comm/collective.hpp"
#include "dptk/comm/local_reduce.hpp"
#include "dptk/comm/root.hpp"
#include "dptk/core/fnv1a.hpp"

namespace dptk {

namespace detail {

/// A call over devices, on one rank: one input and one output for each.
struct DeviceCall {
    Verb verb;
    std::vector<Buffer> inputs;
    std::vector<Buffer> outputs;
    Reduction reduction = {};
    int root = 0;
    int root_device = 0;

    [[nodiscard]] std::size_t devices() const noexcept { return inputs.size(); }

    /// What must be the same on all ranks.
    [[nodiscard]] std::string description() const {
        const Buffer& input = inputs[0];
        std::string out =
            text(dptk::describe({.verb = verb, .input = input, .reduction = reduction, .root = root}),
                 " with ", devices(), " devices of ", input.bytes(), " bytes");
        if (has_root(verb)) out += text(", root device ", root_device);
        return out;
    }

    /// What a combination of inputs looks like, before it is rounded.
    [[nodiscard]] Buffer sum_like() const {
        Buffer sum = inputs[0];
        if (needs_wide_accumulation(sum.dtype, reduction)) sum.dtype = accumulation_dtype(sum.dtype);
        return sum;
    }
};

[[nodiscard]] inline bool same_elements(const Buffer& a, const Buffer& b) noexcept {
    return a.dtype == b.dtype && a.element_size() == b.element_size();
}

/// Why the devices cannot have these buffers; empty where they can.
[[nodiscard]] inline std::string unequal_devices(const std::vector<Buffer>& buffers) {
    for (std::size_t i = 1; i < buffers.size(); ++i) {
        if (same_elements(buffers[0], buffers[i]) && buffers[0].count == buffers[i].count) continue;
        return text("device ", i, " has ", buffers[i].count, " x ", dtype_name(buffers[i].dtype),
                    ", where device 0 has ", buffers[0].count, " x ", dtype_name(buffers[0].dtype));
    }
    return {};
}

/// Why the operation has no meaning; empty where it has one.
[[nodiscard]] inline std::string reduction_problem(DType dtype, const Reduction& reduction) {
    try {
        check_reduction(dtype, reduction);
        return {};
    } catch (const ArgumentError& error) {
        return error.what();
    }
}

/// Why the call cannot be in a group of `size`; empty where it can.
[[nodiscard]] inline std::string problem_with(const DeviceCall& call, int size) {
    if (call.inputs.empty() && call.outputs.empty()) return "no device";
    if (call.inputs.size() != call.outputs.size())
        return text(call.inputs.size(), " inputs and ", call.outputs.size(), " outputs");
    for (const auto* buffers : {&call.inputs, &call.outputs}) {
        if (std::string problem = unequal_devices(*buffers); !problem.empty()) return problem;
    }
    const Buffer& in = call.inputs[0];
    const Buffer& out = call.outputs[0];
    const std::size_t all = call.devices() * static_cast<std::size_t>(size);
    const std::size_t given = call.verb == Verb::all_gather ? in.count * all : in.count;
    const std::size_t taken = call.verb == Verb::reduce_scatter ? out.count * all : out.count;
    if (!same_elements(in, out) || given != taken)
        return text("inputs of ", in.count, " x ", dtype_name(in.dtype), " into outputs of ", out.count,
                    " x ", dtype_name(out.dtype), ", over ", all, " devices");
    if (std::string problem = root_problem(call.root, size); !problem.empty()) return problem;
    if (call.root_device < 0 || call.root_device >= static_cast<int>(call.devices()))
        return text("root device ", call.root_device, " is outside [0, ", call.devices() - 1, "]");
    return reduces(call.verb) ? reduction_problem(in.dtype, call.reduction) : std::string();
}

/// Throws on all ranks where the call cannot be on one of them, or differs between them. Collective.
template <class Group>
void check_devices(Group& group, const DeviceCall& call) {
    const std::string problem = problem_with(call, group.size());
    const std::string description = problem.empty() ? call.description() : std::string();
    const std::uint64_t word = problem.empty() ? fnv1a(description) | 1 : 0;
    const std::vector<std::uint64_t> words = group.all_gather_value(word);
    if (std::ranges::find(words, 0U) != words.end()) {
        throw_agreed(group, ArgumentError(text("multi_device::", verb_name(call.verb), ": ",
                                               gather_problems(group, problem))));
    }
    if (std::ranges::adjacent_find(words, std::ranges::not_equal_to{}) == words.end()) return;
    check_equal_tables(group, "calls over devices", description);
}

/// Combines the inputs of this rank's devices, in their order and piece by piece in the cache, into `sum`,
/// whose dtype may be wider.
inline void combine_devices(const Buffer& sum, const DeviceCall& call) {
    constexpr std::size_t piece_bytes = 16384;
    const std::size_t piece = std::max<std::size_t>(piece_bytes / sum.element_size(), 1);
    const algorithms::Scratch widened(sum.slice(0, std::min(piece, sum.count)));
    for (std::size_t done = 0; done < sum.count; done += piece) {
        const std::size_t count = std::min(piece, sum.count - done);
        const Buffer total = sum.slice(done, count);
        convert(total, call.inputs[0].slice(done, count));
        for (std::size_t device = 1; device < call.devices(); ++device) {
            Buffer part = call.inputs[device].slice(done, count);
            if (part.dtype != sum.dtype) {
                convert(widened.buffer().slice(0, count), part);
                part = widened.buffer().slice(0, count);
            }
            combine(total, part, call.reduction);
        }
    }
}

/// Combines the inputs of all devices of all ranks. The result is where the call's verb puts it: in all of
/// the memory, in the root's, or in this rank's part, which is returned.
template <class Group>
[[nodiscard]] Buffer reduce_devices(Group& group, const DeviceCall& call, const Buffer& sum) {
    combine_devices(sum, call);
    const auto ranks = static_cast<std::size_t>(group.size());
    Buffer result = sum;
    if (call.verb == Verb::reduce_scatter)
        result = sum.slice(static_cast<std::size_t>(group.rank()) * (sum.count / ranks), sum.count / ranks);
    group.channel().run({.verb = call.verb,
                         .input = sum,
                         .output = result,
                         .reduction = call.reduction.averages() ? ReduceOp::sum : call.reduction,
                         .root = call.root});
    if (call.reduction.averages()) divide(result, static_cast<double>(ranks * call.devices()));
    return result;
}

}  // namespace detail

}  // namespace dptk
