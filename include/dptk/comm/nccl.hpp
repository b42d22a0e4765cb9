/// Groups over NCCL. Including this header makes every ProcessGroup serve the memory of CUDA devices: its
/// calls on host memory go over the group's own transport, and those on device memory over NCCL, which is
/// connected, between the devices that their buffers are on, when the first of them comes.
#pragma once

#include "dptk/comm/nccl_transport.hpp"

#include <memory>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include "dptk/comm/agreement.hpp"
#include "dptk/comm/communicator.hpp"
#include "dptk/comm/device_registry.hpp"
#include "dptk/comm/nccl_devices.hpp"
#include "dptk/comm/staged.hpp"
#include "dptk/control/agreed_errors.hpp"

namespace dptk {

/// Made through a Store (NcclTransport), around an ncclComm_t (NcclTransport), or over any group's ranks
/// (nccl_communicator).
using NcclCommunicator = BasicCommunicator<NcclTransport>;

namespace detail {

/// A channel over NCCL between the ranks of another one, whose job they go on to share. Collective.
[[nodiscard]] inline std::unique_ptr<TransportChannel<NcclTransport>> connect_nccl(Channel& group,
                                                                                   NcclOptions options) {
    const ChannelJob& job = group.job();
    std::vector<int> ranks(static_cast<std::size_t>(group.size()));
    std::iota(ranks.begin(), ranks.end(), 0);
    ChannelIdentity identity = group.next_identity(ranks, std::nullopt);
    options.rank = group.rank();
    options.size = group.size();
    options.control = job.control;
    options.timeout = identity.timeout;
    const auto exchange = [&](const NcclCard& own) {
        std::vector<NcclCard> cards(ranks.size());
        group.run({.verb = Verb::all_gather,
                   .input = buffer_of(std::span<const NcclCard>(&own, 1)),
                   .output = buffer_of(cards)});
        return cards;
    };
    std::unique_ptr<TransportChannel<NcclTransport>> channel;
    break_job_unless_agreed(job, [&] {
        channel = std::make_unique<TransportChannel<NcclTransport>>(
            NcclTransport(std::move(options), exchange), job, std::move(identity));
    });
    return channel;
}

[[nodiscard]] inline std::unique_ptr<Channel> connect_nccl_on(Channel& host, std::optional<int> device) {
    return connect_nccl(host, {.device = device});
}

inline const bool nccl_is_registered =
    register_device_transport({"nccl", 1, connect_nccl_on, connect_nccl_devices});

}  // namespace detail

/// A communicator over NCCL between the ranks of a group, on the current CUDA device unless the options name
/// one; their rank, size, store, control and timeout are the group's. They fail together. Collective; blocks.
/// Throws as NcclTransport does; what is agreed leaves the group usable.
template <class Group>
[[nodiscard]] NcclCommunicator nccl_communicator(Group& group, NcclOptions options = {}) {
    return NcclCommunicator(detail::connect_nccl(group.channel(), std::move(options)));
}

}  // namespace dptk
