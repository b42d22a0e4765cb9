/// Multi-device collectives, for processes that use several devices each (multi-GPU per process, as
/// ncclGroupStart allows). The collectives run over all devices of all ranks. Each process passes one buffer
/// per device, in the device's memory or in host memory.
///
/// All multi-device calls are collective and block. All ranks must have the same number of devices, and
/// buffers of the same type and count. Device d of rank r has the number r * n + d if each rank has n
/// devices. Errors are agreed: all ranks throw ArgumentError if the arguments of any rank are invalid, and
/// MismatchError if the arguments differ between ranks; the group stays usable. This check of the arguments
/// costs one all_gather of 8 bytes per rank.
///
/// If the buffers are in host memory, each process first combines its devices' buffers, then takes part in
/// one collective of the group, and copies the result to its devices' buffers. Sums of f16 and bf16 are
/// accumulated in f32, also between ranks, and rounded once. Buffers in device memory must each be on a
/// different device. They are sent over NCCL or staged through host memory, as in the group's own verbs;
/// `streams` has one stream per device.
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
    if (call.on_devices()) return group.engine().run_on_devices(call);
    run_devices_on_host(group, call);
}

}  // namespace detail

namespace multi_device {

/// Combines the elements of all devices of all ranks, elementwise and in place. Every device gets bitwise
/// identical results. A user function combines the elements in the order of the devices' numbers.
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

/// Combines the elements of all devices of all ranks, elementwise, into the buffer of one device of the
/// root. The elements of all other devices are unchanged.
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

/// Gathers the inputs of all devices of all ranks in each output, in the order of the devices' numbers. The
/// input of a device may be that device's part of its output.
template <class Group, BufferList In, MutableBufferList Out>
void all_gather(Group& group, In&& inputs, Out&& outputs, std::span<const StreamRef> streams = {}) {
    detail::run_devices(group,
                        {.verb = Verb::all_gather,
                         .inputs = detail::erase_buffers(inputs).buffers,
                         .outputs = detail::erase_buffers(outputs).buffers},
                        streams);
}

/// Combines the inputs of all devices of all ranks, elementwise, and scatters the result: the output of the
/// device with number n gets part n. The output of a device may be that device's part of its input.
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
