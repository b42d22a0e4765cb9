/// A process group's channel: calls on host memory go over one transport, and calls on device memory over
/// another one, which is connected when the first of them comes.
#pragma once

#include <algorithm>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "dptk/comm/agreement.hpp"
#include "dptk/comm/channel.hpp"
#include "dptk/comm/device_call.hpp"
#include "dptk/comm/device_registry.hpp"
#include "dptk/comm/joint_work.hpp"
#include "dptk/comm/verbs.hpp"
#include "dptk/control/agreed_errors.hpp"
#include "dptk/core/device_calls.hpp"

namespace dptk::detail {

/// The verbs of a channel that somebody else owns.
class ChannelVerbs : public CollectiveVerbs<ChannelVerbs> {
  public:
    explicit ChannelVerbs(Channel& channel) : channel_(channel) {}

    [[nodiscard]] Channel& channel() noexcept { return channel_; }
    [[nodiscard]] const Channel& channel() const noexcept { return channel_; }

  private:
    Channel& channel_;
};

class RoutedChannel final : public Channel {
  public:
    explicit RoutedChannel(std::unique_ptr<Channel> host) : host_(std::move(host)) {}

    [[nodiscard]] int rank() const override { return host_->rank(); }
    [[nodiscard]] int size() const override { return host_->size(); }
    [[nodiscard]] int local_rank() const override { return host_->local_rank(); }
    [[nodiscard]] int local_size() const override { return host_->local_size(); }
    [[nodiscard]] std::string backend() const override { return host_->backend(); }
    [[nodiscard]] bool callable_from_this_thread() const override {
        return host_->callable_from_this_thread();
    }

    [[nodiscard]] bool progresses_by_caller() const override { return host_->progresses_by_caller(); }
    [[nodiscard]] bool competes_with_compute() const override { return host_->competes_with_compute(); }
    [[nodiscard]] std::vector<void*> peer_memory(const Buffer& memory) const override {
        return host_->peer_memory(memory);
    }
    [[nodiscard]] bool takes_device_memory(const Collective& call) const override {
        return host_->takes_device_memory(call);
    }

    void run(const Collective& call) override {
        if (call.verb == Verb::barrier) {
            for (const auto& [device, channel] : devices_) channel->run(call);
            for (const auto& [devices, group] : device_groups_) group->finish();
        }
        route(call.shared_shape()).run(call);
    }

    [[nodiscard]] Work start(const Collective& call, std::shared_ptr<const void> keep_alive,
                             std::function<void()> then) override {
        if (call.verb == Verb::barrier && !devices_.empty()) {
            std::vector<Work> works;
            for (const auto& [device, channel] : devices_) works.push_back(channel->start(call, keep_alive));
            works.push_back(host_->start(call, std::move(keep_alive), std::move(then)));
            return join_works(works);
        }
        return route(call.shared_shape()).start(call, std::move(keep_alive), std::move(then));
    }

    [[nodiscard]] bool is_connected_for(const DeviceCall& call) const override {
        return device_groups_.contains(call.device_indices());
    }

    void run_on_devices(const DeviceCall& call) override {
        const std::vector<int> devices = call.device_indices();
        auto group = device_groups_.find(devices);
        if (group == device_groups_.end()) {
            std::unique_ptr<DeviceGroup> connected = choose().connect_several(host(), devices);
            group = device_groups_.emplace(devices, std::move(connected)).first;
        }
        break_job_unless_agreed(job(), [&] { group->second->run(call); });
    }

    int run(const Message& message) override { return route(message.buffer).run(message); }

    [[nodiscard]] Work start(const Message& message, std::shared_ptr<const void> keep_alive) override {
        return route(message.buffer).start(message, std::move(keep_alive));
    }

    void launch_started() override {
        for (const auto& [device, channel] : devices_) channel->launch_started();
    }

    [[nodiscard]] std::unique_ptr<Channel> duplicate() override { return routed(host().duplicate()); }
    [[nodiscard]] bool has_subgroups() const override { return host_->has_subgroups(); }
    [[nodiscard]] std::unique_ptr<Channel> subgroup(
        std::span<const int> ranks, std::optional<std::chrono::milliseconds> timeout) override {
        return routed(host().subgroup(ranks, timeout));
    }

    [[nodiscard]] std::shared_ptr<void> allocate(std::size_t bytes) override {
        return host().allocate(bytes);
    }
    [[nodiscard]] DeviceMemory allocate_on_device(std::size_t bytes, std::optional<int> device) override {
        const int index = device ? *device : device_calls().current_device();
        return (device ? connect_once(index) : device_channel(index)).allocate_on_device(bytes, device);
    }
    [[nodiscard]] bool serves_devices() const override { return true; }

    void monitored_barrier(std::chrono::milliseconds timeout) override { host().monitored_barrier(timeout); }
    void set_algorithm(AllReduceAlgorithm algorithm) override { host_->set_algorithm(algorithm); }

    [[nodiscard]] const ChannelIdentity& identity() const override { return host_->identity(); }
    [[nodiscard]] ChannelIdentity next_identity(std::span<const int> ranks,
                                                std::optional<std::chrono::milliseconds> timeout) override {
        return host_->next_identity(ranks, timeout);
    }
    [[nodiscard]] const ChannelJob& job() const override { return host_->job(); }

  private:
    using Connected = std::pair<int, std::unique_ptr<Channel>>;

    [[nodiscard]] static std::unique_ptr<Channel> routed(std::unique_ptr<Channel> host) {
        return host ? std::make_unique<RoutedChannel>(std::move(host)) : nullptr;
    }

    [[nodiscard]] Channel& route(const Buffer& buffer) {
        return buffer.on_device() ? device_channel(buffer.device.index) : host();
    }

    /// For calls that may wait there for a rank that waits for what was started on the device.
    [[nodiscard]] Channel& host() {
        launch_started();
        return *host_;
    }

    /// Of a device, or, where nobody has asked for that one, the first's, which says so.
    [[nodiscard]] Channel& device_channel(int device) {
        const bool is_known = std::ranges::find(devices_, device, &Connected::first) != devices_.end();
        return is_known || devices_.empty() ? connect_once(device) : *devices_.front().second;
    }

    /// Collective, the first time for a device.
    [[nodiscard]] Channel& connect_once(int device) {
        const auto found = std::ranges::find(devices_, device, &Connected::first);
        if (found != devices_.end()) return *found->second;
        return *devices_.emplace_back(device, choose().connect(*host_, device)).second;
    }

    /// The same on all ranks. Collective.
    [[nodiscard]] DeviceTransportEntry choose() {
        const DeviceTransportEntry transport = choose_device_transport();
        ChannelVerbs ranks(*host_);
        check_equal_tables(ranks, "device transports", transport.name);
        return transport;
    }

    std::unique_ptr<Channel> host_;
    // These go first. In the order in which they were connected, which is the same on all ranks.
    std::vector<Connected> devices_;
    std::map<std::vector<int>, std::unique_ptr<DeviceGroup>> device_groups_;
};

}  // namespace dptk::detail
