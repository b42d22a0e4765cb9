/// Groups over NCCL.
#pragma once

#include "dptk/comm/nccl_transport.hpp"

#include <memory>
#include <numeric>
#include <utility>
#include <vector>

#include "dptk/comm/agreement.hpp"
#include "dptk/comm/communicator.hpp"
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
    break_job_unless_agreed(*job.control->health(), *job.agreed_errors, job.control->rank(), [&] {
        channel = std::make_unique<TransportChannel<NcclTransport>>(
            NcclTransport(std::move(options), exchange), job, std::move(identity));
    });
    return channel;
}

}  // namespace detail

/// A communicator over NCCL between the ranks of a group, on the current CUDA device unless the options name
/// one; their rank, size, store, control and timeout are the group's. They fail together. Collective; blocks.
/// Throws as NcclTransport does; what is agreed leaves the group usable.
template <class Group>
[[nodiscard]] NcclCommunicator nccl_communicator(Group& group, NcclOptions options = {}) {
    return NcclCommunicator(detail::connect_nccl(group.channel(), std::move(options)));
}

}  // namespace dptk
