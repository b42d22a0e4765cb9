/// The channel of a process group: dispatches calls on host memory to one transport, and calls on device
/// memory to another one, which is connected lazily, at the first such call.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "dptk/comm/detail/channel.hpp"
#include "dptk/comm/detail/device_call.hpp"
#include "dptk/comm/detail/device_registry.hpp"
#include "dptk/comm/verbs.hpp"
#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE::detail {

/// The collective verbs over a channel that this object does not own.
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
    explicit RoutedChannel(std::unique_ptr<Channel> host);

    [[nodiscard]] int rank() const override { return host_->rank(); }
    [[nodiscard]] int size() const override { return host_->size(); }
    [[nodiscard]] int local_rank() const override { return host_->local_rank(); }
    [[nodiscard]] int local_size() const override { return host_->local_size(); }
    [[nodiscard]] std::string backend() const override { return host_->backend(); }

    void set_purpose(const CallPurpose& purpose) override {
        host_->set_purpose(purpose);
        for (const auto& [device, channel] : devices_) channel->set_purpose(purpose);
    }

    [[nodiscard]] DPTK_INLINE bool callable_from_this_thread() const override;

    [[nodiscard]] bool progresses_by_caller() const override { return host_->progresses_by_caller(); }
    [[nodiscard]] bool competes_with_compute() const override { return host_->competes_with_compute(); }
    [[nodiscard]] DPTK_INLINE std::vector<void*> peer_memory(const Buffer& memory) const override;
    [[nodiscard]] DPTK_INLINE bool takes_device_memory(const Collective& call) const override;

    DPTK_INLINE void run(const Collective& call) override;

    [[nodiscard]] DPTK_INLINE Work start(const Collective& call, std::shared_ptr<const void> keep_alive,
                                         std::function<void()> then) override;

    [[nodiscard]] DPTK_INLINE bool is_connected_for(const DeviceCall& call) const override;

    DPTK_INLINE void run_on_devices(const DeviceCall& call) override;

    DPTK_INLINE int run(const Message& message) override;

    [[nodiscard]] DPTK_INLINE Work start(const Message& message,
                                         std::shared_ptr<const void> keep_alive) override;

    [[nodiscard]] bool can_probe() const override { return host_->can_probe(); }
    [[nodiscard]] DPTK_INLINE std::optional<MessageInfo> try_probe(const Message& message) override;
    [[nodiscard]] DPTK_INLINE MessageInfo probe(const Message& message) override;

    DPTK_INLINE void launch_started() override;

    [[nodiscard]] DPTK_INLINE std::unique_ptr<Channel> duplicate() override;
    [[nodiscard]] bool has_subgroups() const override { return host_->has_subgroups(); }
    [[nodiscard]] DPTK_INLINE std::unique_ptr<Channel> subgroup(
        std::span<const int> ranks, std::optional<std::chrono::milliseconds> timeout) override;

    [[nodiscard]] DPTK_INLINE std::shared_ptr<void> allocate(std::size_t bytes) override;
    [[nodiscard]] DPTK_INLINE DeviceMemory allocate_on_device(std::size_t bytes,
                                                              std::optional<int> device) override;
    [[nodiscard]] bool serves_devices() const override { return true; }

    DPTK_INLINE void monitored_barrier(std::chrono::milliseconds timeout) override;
    void set_algorithm(AllReduceAlgorithm algorithm) override { host_->set_algorithm(algorithm); }

    [[nodiscard]] const ChannelIdentity& identity() const override { return host_->identity(); }
    [[nodiscard]] DPTK_INLINE ChannelIdentity
    next_identity(std::span<const int> ranks, std::optional<std::chrono::milliseconds> timeout) override;
    [[nodiscard]] const ChannelJob& job() const override { return host_->job(); }

  private:
    using Connected = std::pair<int, std::unique_ptr<Channel>>;

    struct ConnectedGroup {
        std::vector<int> devices;
        std::unique_ptr<DeviceGroup> group;
    };

    [[nodiscard]] static std::unique_ptr<Channel> routed(std::unique_ptr<Channel> host);

    [[nodiscard]] Channel& route(const Buffer& buffer);

    /// Launches the messages that were started on devices, and returns the host channel: a call on the host
    /// may wait for a rank that waits for one of these messages.
    [[nodiscard]] Channel& host();

    /// Returns the channel of a device. If only other devices are connected, returns the channel of the first
    /// of them: calls on that channel throw, because the memory is on another device.
    [[nodiscard]] Channel& device_channel(int device);

    /// Returns the channel of a device. The first call for a device connects the channel, and is collective.
    [[nodiscard]] Channel& connect_once(int device);

    /// Chooses the device transport, and checks that all ranks choose the same one. Collective.
    [[nodiscard]] DeviceTransportEntry choose();

    std::unique_ptr<Channel> host_;
    // The channels of devices, in the order in which the devices were connected, which is the same on all
    // ranks. Destroyed before host_.
    std::vector<Connected> devices_;
    std::vector<ConnectedGroup> device_groups_;
};

}  // namespace DPTK_NAMESPACE::detail

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/comm/detail/routed_channel.ipp"
#endif
