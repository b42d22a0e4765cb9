/// What NCCL ranks tell each other before they connect, so that what cannot work is an error of all of them:
/// where two ranks are on one GPU, or use different versions of NCCL, its own way to say so is a hang or a
/// line on one rank.
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

struct NcclPeerInfo {
    /// Of the communicator to be; rank 0's counts.
    ncclUniqueId id = {};
    int version = 0;
    /// As the job counts its ranks.
    int job_rank = 0;
    std::array<char, 32> bus_id{};
    std::array<char, 128> host{};
    std::array<char, 128> label{};
    /// Why this rank cannot connect; empty where it can.
    std::array<char, 512> problem{};

    [[nodiscard]] std::string bytes() const { return {reinterpret_cast<const char*>(this), sizeof *this}; }

    [[nodiscard]] static NcclPeerInfo from_bytes(std::string_view bytes);
};

template <std::size_t n>
void write_text(std::array<char, n>& to, std::string_view from) {
    to = {};
    std::memcpy(to.data(), from.data(), std::min(from.size(), n - 1));
}

/// Does something that this rank needs to connect; where it fails, that stands on the info.
template <class Action>
void note_problem(NcclPeerInfo& info, Action&& action) {
    try {
        action();
    } catch (const std::exception& error) {
        if (info.problem[0] == '\0') write_text(info.problem, error.what());
    }
}

/// This rank's info, for a communicator on `device`. Does not throw: what fails stands on the info.
[[nodiscard]] NcclPeerInfo make_nccl_peer_info(int rank, int job_rank, int device);

/// May two ranks be on one GPU? NCCL refuses, unless it takes them for ranks of different hosts.
enum class SharedGpus { refused, allowed };

/// Throws, on all ranks alike, where these ranks cannot connect.
void check_nccl_peers(const std::vector<NcclPeerInfo>& peers, SharedGpus shared);

/// Makes NCCL take this process for one on a host of its own. Before anything else of NCCL's.
void set_unique_host_id();

/// All ranks' peers, by rank, through a store. Throws TimeoutError with the ranks that have not come.
[[nodiscard]] std::vector<NcclPeerInfo> exchange_peer_info_in_store(Store& store, const std::string& name,
                                                                    int rank, int size,
                                                                    const NcclPeerInfo& own,
                                                                    const JobState& job_state,
                                                                    std::chrono::milliseconds timeout);

}  // namespace DPTK_NAMESPACE::detail

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/comm/nccl/peer_info.ipp"
#endif
