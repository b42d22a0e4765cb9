#pragma once

#include "dptk/comm/detail/routed_channel.hpp"

#include "dptk/comm/agreement.hpp"
#include "dptk/comm/detail/joint_work.hpp"
#include "dptk/core/detail/algorithms.hpp"
#include "dptk/core/detail/device_calls.hpp"

namespace DPTK_NAMESPACE::detail {

DPTK_INLINE RoutedChannel::RoutedChannel(std::unique_ptr<Channel> host) : host_(std::move(host)) {}

DPTK_INLINE bool RoutedChannel::callable_from_this_thread() const {
    return host_->callable_from_this_thread();
}

DPTK_INLINE std::vector<void*> RoutedChannel::peer_memory(const Buffer& memory) const {
    return host_->peer_memory(memory);
}

DPTK_INLINE bool RoutedChannel::takes_device_memory(const Collective& call) const {
    return host_->takes_device_memory(call);
}

DPTK_INLINE void RoutedChannel::run(const Collective& call) {
    if (call.verb == Verb::barrier) {
        for (const auto& [device, channel] : devices_) channel->run(call);
        for (const ConnectedGroup& connected : device_groups_) connected.group->finish();
    }
    route(call.shared_shape()).run(call);
}

DPTK_INLINE Work RoutedChannel::start(const Collective& call, std::shared_ptr<const void> keep_alive,
                                      std::function<void()> then) {
    if (call.verb == Verb::barrier) {
        for (const ConnectedGroup& connected : device_groups_) connected.group->finish();
    }
    if (call.verb == Verb::barrier && !devices_.empty()) {
        std::vector<Work> works;
        for (const auto& [device, channel] : devices_) works.push_back(channel->start(call, keep_alive));
        works.push_back(host_->start(call, std::move(keep_alive), std::move(then)));
        return join_works(std::move(works), job());
    }
    return route(call.shared_shape()).start(call, std::move(keep_alive), std::move(then));
}

DPTK_INLINE bool RoutedChannel::is_connected_for(const DeviceCall& call) const {
    return detail::contains(device_groups_, call.device_indices(), &ConnectedGroup::devices);
}

DPTK_INLINE void RoutedChannel::run_on_devices(const DeviceCall& call) {
    const std::vector<int> devices = call.device_indices();
    auto connected = detail::find(device_groups_, devices, &ConnectedGroup::devices);
    if (connected == device_groups_.end()) {
        device_groups_.push_back({devices, choose().connect_several(host(), devices)});
        connected = device_groups_.end() - 1;
    }
    break_job_unless_agreed(job(), [&] { connected->group->run(call); });
}

DPTK_INLINE int RoutedChannel::run(const Message& message) {
    return route(message.buffer).run(message);
}

DPTK_INLINE Work RoutedChannel::start(const Message& message, std::shared_ptr<const void> keep_alive) {
    return route(message.buffer).start(message, std::move(keep_alive));
}

DPTK_INLINE std::optional<MessageInfo> RoutedChannel::try_probe(const Message& message) {
    return host().try_probe(message);
}

DPTK_INLINE MessageInfo RoutedChannel::probe(const Message& message) {
    return host().probe(message);
}

DPTK_INLINE void RoutedChannel::launch_started() {
    for (const auto& [device, channel] : devices_) channel->launch_started();
}

DPTK_INLINE std::unique_ptr<Channel> RoutedChannel::duplicate() {
    return routed(host().duplicate());
}

DPTK_INLINE std::unique_ptr<Channel> RoutedChannel::subgroup(
    std::span<const int> ranks, std::optional<std::chrono::milliseconds> timeout) {
    return routed(host().subgroup(ranks, timeout));
}

DPTK_INLINE std::shared_ptr<void> RoutedChannel::allocate(std::size_t bytes) {
    return host().allocate(bytes);
}

DPTK_INLINE DeviceMemory RoutedChannel::allocate_on_device(std::size_t bytes, std::optional<int> device) {
    const int index = device ? *device : device_calls().current_device();
    return (device ? connect_once(index) : device_channel(index)).allocate_on_device(bytes, device);
}

DPTK_INLINE void RoutedChannel::monitored_barrier(std::chrono::milliseconds timeout) {
    host().monitored_barrier(timeout);
}

DPTK_INLINE ChannelIdentity RoutedChannel::next_identity(std::span<const int> ranks,
                                                         std::optional<std::chrono::milliseconds> timeout) {
    return host_->next_identity(ranks, timeout);
}

DPTK_INLINE std::unique_ptr<Channel> RoutedChannel::routed(std::unique_ptr<Channel> host) {
    return host ? std::make_unique<RoutedChannel>(std::move(host)) : nullptr;
}

DPTK_INLINE Channel& RoutedChannel::route(const Buffer& buffer) {
    return buffer.on_device() ? device_channel(buffer.device.index) : host();
}

DPTK_INLINE Channel& RoutedChannel::host() {
    launch_started();
    return *host_;
}

DPTK_INLINE Channel& RoutedChannel::device_channel(int device) {
    const bool is_known = detail::contains(devices_, device, &Connected::first);
    return is_known || devices_.empty() ? connect_once(device) : *devices_.front().second;
}

DPTK_INLINE Channel& RoutedChannel::connect_once(int device) {
    const auto found = detail::find(devices_, device, &Connected::first);
    if (found != devices_.end()) return *found->second;
    return *devices_.emplace_back(device, choose().connect(*host_, device)).second;
}

DPTK_INLINE DeviceTransportEntry RoutedChannel::choose() {
    const DeviceTransportEntry transport = choose_device_transport();
    ChannelVerbs ranks(*host_);
    check_equal_tables(ranks, "device transports", transport.name);
    return transport;
}

}  // namespace DPTK_NAMESPACE::detail
