/// Peer info that NCCL ranks exchange before they connect, so that all of them throw the same error if they
/// cannot connect. If two ranks use the same GPU or different versions of NCCL, NCCL itself hangs or fails
/// on one rank only.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <exception>
#include <string>
#include <string_view>
#include <vector>

#include "dptk/comm/nccl/types.hpp"
#include "dptk/control/health/job_state.hpp"
#include "dptk/control/store/store.hpp"
#include "dptk/core/config.hpp"
#include "dptk/core/cuda/device.hpp"

namespace DPTK_NAMESPACE::detail {

/// What a rank sends to the others before they connect. Trivially copyable.
struct NcclPeerInfo {
    /// The id of the new communicator. All ranks use the id that rank 0 sends.
    ncclUniqueId id = {};
    int version = 0;
    /// The rank in the job.
    int job_rank = 0;
    std::array<char, 32> bus_id{};
    std::array<char, 128> host{};
    std::array<char, 128> label{};
    /// Why this rank cannot connect; empty if it can.
    std::array<char, 512> problem{};

    [[nodiscard]] std::string bytes() const { return {reinterpret_cast<const char*>(this), sizeof *this}; }

    [[nodiscard]] static NcclPeerInfo from_bytes(std::string_view bytes);
};

template <std::size_t n>
void write_text(std::array<char, n>& to, std::string_view from) {
    to = {};
    std::memcpy(to.data(), from.data(), std::min(from.size(), n - 1));
}

/// Runs an action that must succeed before this rank can connect. If the action throws, records the error in
/// `info`, unless an error is already recorded there.
template <class Action>
void record_problem(NcclPeerInfo& info, Action&& action) {
    try {
        action();
    } catch (const std::exception& error) {
        if (info.problem[0] == '\0') write_text(info.problem, error.what());
    }
}

/// Returns this rank's info, for a communicator on `device`. Does not throw: an error is recorded in the
/// info.
[[nodiscard]] NcclPeerInfo make_nccl_peer_info(int rank, int job_rank, int device);

/// Whether two ranks may use the same GPU. NCCL refuses that, unless the ranks seem to be on different
/// hosts.
enum class SharedGpus { refused, allowed };

/// Throws an agreed error, the same on all ranks, if these ranks cannot connect.
void check_nccl_peers(const std::vector<NcclPeerInfo>& peers, SharedGpus shared);

/// Sets the environment variable NCCL_HOSTID to a value that is unique to this process, so that NCCL treats
/// the process as a host of its own. Changes nothing if the variable is set already. Must be called before
/// any NCCL function, and while no other thread of the process reads the environment.
void set_unique_host_id();

/// Exchanges the infos of all ranks through a store, and returns them by rank. Collective; blocks. At the
/// timeout, throws a TimeoutError that names the missing ranks.
[[nodiscard]] std::vector<NcclPeerInfo> exchange_peer_info_in_store(Store& store, const std::string& name,
                                                                    int rank, int size,
                                                                    const NcclPeerInfo& own,
                                                                    const JobState& job_state,
                                                                    std::chrono::milliseconds timeout);

}  // namespace DPTK_NAMESPACE::detail

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/comm/nccl/peer_info.ipp"
#endif
