/// Collectives of processes that work with several devices each: over all devices of all ranks, with one
/// buffer, in CPU memory, for each device of this process.
///
/// A process combines its devices' buffers first; one collective of the group follows, and copies to the
/// devices. All are collective, and block. All ranks have the same number of devices, and buffers of the same
/// type and count: device d of rank r is number r * devices + d of all. Sums of the 16-bit formats are kept
/// in f32, also between ranks, and rounded once. Errors are agreed: all ranks throw ArgumentError where the
/// arguments of any make no sense, and MismatchError where the ranks' differ; the group stays usable. To know
/// costs one all_gather of 8 bytes a rank.
#pragma once

#include <cstddef>
#include <vector>

#include "dptk/comm/algorithms/exchange.hpp"
#include "dptk/comm/buffer_lists.hpp"
#include "dptk/comm/device_call.hpp"
#include "dptk/comm/local_reduce.hpp"

namespace dptk::multi_device {

/// Combines the elements of all devices of all ranks, position by position, in place: every device gets the
/// same bits. A function of the user's combines them in the order of the devices' numbers.
template <class Group, MutableBufferList B>
void all_reduce(Group& group, B&& buffers, const ReduceOperationOnList<B>& operation = ReduceOp::sum) {
    const std::vector<Buffer> devices = detail::erase_buffers(buffers).buffers;
    const detail::DeviceCall call{.verb = Verb::all_reduce,
                                  .inputs = devices,
                                  .outputs = devices,
                                  .reduction = detail::reduction_of(operation)};
    detail::check_devices(group, call);
    const algorithms::Scratch memory(call.sum_like());
    const Buffer sum = detail::reduce_devices(group, call, memory.buffer());
    for (const Buffer& device : devices) detail::convert(device, sum);
}

/// The same with the result on one device of the root alone; all others' elements stay as they are.
template <class Group, MutableBufferList B>
void reduce(Group& group, B&& buffers, int root = 0, int root_device = 0,
            const ReduceOperationOnList<B>& operation = ReduceOp::sum) {
    const std::vector<Buffer> devices = detail::erase_buffers(buffers).buffers;
    const detail::DeviceCall call{.verb = Verb::reduce,
                                  .inputs = devices,
                                  .outputs = devices,
                                  .reduction = detail::reduction_of(operation),
                                  .root = root,
                                  .root_device = root_device};
    detail::check_devices(group, call);
    const algorithms::Scratch memory(call.sum_like());
    const Buffer sum = detail::reduce_devices(group, call, memory.buffer());
    if (group.rank() == root) detail::convert(devices[static_cast<std::size_t>(root_device)], sum);
}

/// Sends the elements of one device of the root to all devices of all ranks.
template <class Group, MutableBufferList B>
void broadcast(Group& group, B&& buffers, int root = 0, int root_device = 0) {
    const std::vector<Buffer> devices = detail::erase_buffers(buffers).buffers;
    detail::check_devices(group, {.verb = Verb::broadcast,
                                  .inputs = devices,
                                  .outputs = devices,
                                  .root = root,
                                  .root_device = root_device});
    const Buffer& first = devices[static_cast<std::size_t>(root_device)];
    group.channel().run({.verb = Verb::broadcast, .input = first, .output = first, .root = root});
    for (const Buffer& device : devices) {
        if (device.data != first.data) detail::convert(device, first);
    }
}

/// Each output = the inputs of all devices of all ranks, in the order of their numbers. An input may be its
/// place in its device's output.
template <class Group, BufferList In, MutableBufferList Out>
void all_gather(Group& group, In&& inputs, Out&& outputs) {
    const std::vector<Buffer> own = detail::erase_buffers(inputs).buffers;
    const std::vector<Buffer> devices = detail::erase_buffers(outputs).buffers;
    detail::check_devices(group, {.verb = Verb::all_gather, .inputs = own, .outputs = devices});
    const std::size_t count = own[0].count * own.size();
    const Buffer ours = devices[0].slice(static_cast<std::size_t>(group.rank()) * count, count);
    for (std::size_t i = 0; i < own.size(); ++i)
        detail::convert(ours.slice(i * own[0].count, own[0].count), own[i]);
    group.channel().run({.verb = Verb::all_gather, .input = ours, .output = devices[0]});
    for (std::size_t i = 1; i < devices.size(); ++i) detail::convert(devices[i], devices[0]);
}

/// Combines the inputs of all devices of all ranks, position by position; each output = its device's part of
/// the result, in the order of the devices' numbers. An output may be its device's place in its input.
template <class Group, BufferList In, MutableBufferList Out>
void reduce_scatter(Group& group, In&& inputs, Out&& outputs,
                    const ReduceOperationOnList<Out>& operation = ReduceOp::sum) {
    const detail::DeviceCall call{.verb = Verb::reduce_scatter,
                                  .inputs = detail::erase_buffers(inputs).buffers,
                                  .outputs = detail::erase_buffers(outputs).buffers,
                                  .reduction = detail::reduction_of(operation)};
    detail::check_devices(group, call);
    const algorithms::Scratch memory(call.sum_like());
    const Buffer sum = detail::reduce_devices(group, call, memory.buffer());
    const std::size_t count = call.outputs[0].count;
    for (std::size_t i = 0; i < call.devices(); ++i)
        detail::convert(call.outputs[i], sum.slice(i * count, count));
}

}  // namespace dptk::multi_device
