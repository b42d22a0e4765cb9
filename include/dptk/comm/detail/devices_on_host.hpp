/// Multi-device collectives whose buffers are in host memory: each process combines its devices' buffers
/// first, then the ranks communicate.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "dptk/comm/agreement.hpp"
#include "dptk/comm/algorithms/exchange.hpp"
#include "dptk/comm/algorithms/local_reduce.hpp"
#include "dptk/comm/detail/device_call.hpp"
#include "dptk/core/config.hpp"
#include "dptk/core/detail/algorithms.hpp"
#include "dptk/core/detail/fnv1a.hpp"

namespace DPTK_NAMESPACE {

namespace detail {

/// Throws on all ranks if the call is invalid on one of them, or differs between them. Collective.
template <class Group>
void check_devices(Group& group, const DeviceCall& call) {
    const std::string problem = problem_with(call, group.size());
    std::string description = problem.empty() ? call.description() : std::string();
    if (problem.empty() && call.on_devices() && !group.engine().is_connected_for(call))
        description += ", the first over these devices";
    const std::uint64_t word = problem.empty() ? fnv1a(description) | 1 : 0;
    const std::vector<std::uint64_t> words = group.all_gather_value(word);
    if (detail::contains(words, 0U)) {
        const auto [problems, context] = gather_problems(group, problem);
        throw_agreed(group,
                     ArgumentError(text("multi_device::", verb_name(call.verb), ": ", problems), context));
    }
    if (detail::all_equal(words)) return;
    check_equal_tables(group, "calls over devices", description);
}

/// Combines the inputs of this rank's devices into `sum`, in device order, and in pieces that fit the cache.
/// The dtype of `sum` may be wider than that of the inputs.
void combine_devices(const Buffer& sum, const DeviceCall& call);

/// Combines the inputs of all devices of all ranks, using `sum` as workspace. Returns the part of `sum` that
/// holds this rank's result: all of `sum`, or one slice for reduce_scatter. After reduce, only the root's
/// result is valid.
template <class Group>
[[nodiscard]] Buffer reduce_devices(Group& group, const DeviceCall& call, const Buffer& sum) {
    combine_devices(sum, call);
    const auto ranks = static_cast<std::size_t>(group.size());
    Buffer result = sum;
    if (call.verb == Verb::reduce_scatter)
        result = sum.slice(static_cast<std::size_t>(group.rank()) * (sum.count / ranks), sum.count / ranks);
    group.engine().run({.verb = call.verb,
                        .input = sum,
                        .output = result,
                        .reduction = call.reduction.averages() ? ReduceOp::sum : call.reduction,
                        .root = call.root});
    if (call.reduction.averages()) divide(result, static_cast<double>(ranks * call.devices()));
    return result;
}

/// Executes the call. Requires that all ranks have checked their calls.
template <class Group>
void run_devices_on_host(Group& group, const DeviceCall& call) {
    const auto send_reduced = [&](auto&& deliver) {
        const algorithms::Scratch memory(call.sum_like());
        deliver(reduce_devices(group, call, memory.buffer()));
    };
    const auto root_device = static_cast<std::size_t>(call.root_device);
    switch (call.verb) {
        case Verb::all_reduce:
            return send_reduced([&](const Buffer& sum) {
                for (const Buffer& device : call.outputs) convert(device, sum);
            });
        case Verb::reduce:
            return send_reduced([&](const Buffer& sum) {
                if (group.rank() == call.root) convert(call.outputs[root_device], sum);
            });
        case Verb::reduce_scatter:
            return send_reduced([&](const Buffer& sum) {
                const std::size_t count = call.outputs[0].count;
                for (std::size_t i = 0; i < call.devices(); ++i)
                    convert(call.outputs[i], sum.slice(i * count, count));
            });
        case Verb::broadcast: {
            const Buffer& first = call.outputs[root_device];
            group.engine().run({.verb = Verb::broadcast, .input = first, .output = first, .root = call.root});
            for (const Buffer& device : call.outputs) {
                if (device.data != first.data) convert(device, first);
            }
            return;
        }
        case Verb::all_gather: {
            const std::size_t each = call.inputs[0].count;
            const std::size_t count = each * call.devices();
            const Buffer ours = call.outputs[0].slice(static_cast<std::size_t>(group.rank()) * count, count);
            for (std::size_t i = 0; i < call.devices(); ++i)
                convert(ours.slice(i * each, each), call.inputs[i]);
            group.engine().run({.verb = Verb::all_gather, .input = ours, .output = call.outputs[0]});
            for (std::size_t i = 1; i < call.devices(); ++i) convert(call.outputs[i], call.outputs[0]);
            return;
        }
        default: throw ArgumentError(text(verb_name(call.verb), " is not supported over several devices"));
    }
}

}  // namespace detail

}  // namespace DPTK_NAMESPACE

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/comm/detail/devices_on_host.ipp"
#endif
