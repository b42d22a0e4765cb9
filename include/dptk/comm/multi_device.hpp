/// Collectives of processes that work with several devices each: over all devices of all ranks, with one
/// buffer for each device of this process, in its memory or in the host's.
///
/// All are collective. All ranks have the same number of devices, and buffers of the same type and count:
/// device d of rank r is number r * devices + d of all. Errors are agreed: all ranks throw ArgumentError
/// where the arguments of any make no sense, and MismatchError where the ranks' differ; the group stays
/// usable. To know costs one all_gather of 8 bytes a rank.
///
/// Of buffers in host memory, a process combines its devices' first; one collective of the group follows, and
/// copies to the devices. Sums of the 16-bit formats are kept in f32, also between ranks, and rounded once.
/// All block. Buffers in device memory, each on a device of its own, go over NCCL or through the host, as in
/// the group's own verbs; `streams` has one for each device.
#pragma once

#include <span>
#include <vector>

#include "dptk/comm/buffer_lists.hpp"
#include "dptk/comm/detail/devices_on_host.hpp"
#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE {

namespace detail {

template <class Group>
void run_devices(Group& group, DeviceCall call, std::span<const StreamRef> streams) {
    call.streams.assign(streams.begin(), streams.end());
    check_devices(group, call);
    if (call.on_devices()) return group.channel().run_on_devices(call);
    run_devices_on_host(group, call);
}

}  // namespace detail

namespace multi_device {

/// Combines the elements of all devices of all ranks, position by position, in place: every device gets the
/// same bits. A function of the user's combines them in the order of the devices' numbers.
template <class Group, MutableBufferList B>
void all_reduce(Group& group, B&& buffers, const ReduceOperationOnList<B>& operation = ReduceOp::sum,
                std::span<const StreamRef> streams = {}) {
    const std::vector<Buffer> devices = detail::erase_buffers(buffers).buffers;
    detail::run_devices(group,
                        {.verb = Verb::all_reduce,
                         .inputs = devices,
                         .outputs = devices,
                         .reduction = detail::reduction_of(operation)},
                        streams);
}

/// The same with the result on one device of the root alone; all others' elements stay as they are.
template <class Group, MutableBufferList B>
void reduce(Group& group, B&& buffers, int root = 0, int root_device = 0,
            const ReduceOperationOnList<B>& operation = ReduceOp::sum,
            std::span<const StreamRef> streams = {}) {
    const std::vector<Buffer> devices = detail::erase_buffers(buffers).buffers;
    detail::run_devices(group,
                        {.verb = Verb::reduce,
                         .inputs = devices,
                         .outputs = devices,
                         .reduction = detail::reduction_of(operation),
                         .root = root,
                         .root_device = root_device},
                        streams);
}

/// Sends the elements of one device of the root to all devices of all ranks.
template <class Group, MutableBufferList B>
void broadcast(Group& group, B&& buffers, int root = 0, int root_device = 0,
               std::span<const StreamRef> streams = {}) {
    const std::vector<Buffer> devices = detail::erase_buffers(buffers).buffers;
    detail::run_devices(group,
                        {.verb = Verb::broadcast,
                         .inputs = devices,
                         .outputs = devices,
                         .root = root,
                         .root_device = root_device},
                        streams);
}

/// Each output = the inputs of all devices of all ranks, in the order of their numbers. An input may be its
/// place in its device's output.
template <class Group, BufferList In, MutableBufferList Out>
void all_gather(Group& group, In&& inputs, Out&& outputs, std::span<const StreamRef> streams = {}) {
    detail::run_devices(group,
                        {.verb = Verb::all_gather,
                         .inputs = detail::erase_buffers(inputs).buffers,
                         .outputs = detail::erase_buffers(outputs).buffers},
                        streams);
}

/// Combines the inputs of all devices of all ranks, position by position; each output = its device's part of
/// the result, in the order of the devices' numbers. An output may be its device's place in its input.
template <class Group, BufferList In, MutableBufferList Out>
void reduce_scatter(Group& group, In&& inputs, Out&& outputs,
                    const ReduceOperationOnList<Out>& operation = ReduceOp::sum,
                    std::span<const StreamRef> streams = {}) {
    detail::run_devices(group,
                        {.verb = Verb::reduce_scatter,
                         .inputs = detail::erase_buffers(inputs).buffers,
                         .outputs = detail::erase_buffers(outputs).buffers,
                         .reduction = detail::reduction_of(operation)},
                        streams);
}

}  // namespace multi_device

}  // namespace DPTK_NAMESPACE
