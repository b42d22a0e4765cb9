#pragma once

#include "dptk/comm/nccl/peer_info.hpp"

#include <unistd.h>

#include <map>
#include <utility>

#include "dptk/control/net/host.hpp"
#include "dptk/control/process/deadline.hpp"
#include "dptk/core/detail/error_access.hpp"
#include "dptk/core/detail/text.hpp"
#include "dptk/core/error.hpp"

namespace DPTK_NAMESPACE::detail {

DPTK_INLINE NcclPeerInfo NcclPeerInfo::from_bytes(std::string_view bytes) {
    NcclPeerInfo info;
    if (bytes.size() != sizeof info) throw MismatchError("the ranks use different versions of dptk");
    std::memcpy(&info, bytes.data(), sizeof info);
    return info;
}

/// Returns the version of the loaded NCCL library, in the format of NCCL_VERSION_CODE. Throws BackendError if
/// the library lacks functions that this program calls.
[[nodiscard]] DPTK_INLINE int nccl_runtime_version() {
    int version = 0;
    if (const ncclResult_t result = ncclGetVersion(&version); result != ncclSuccess)
        throw BackendError(text("ncclGetVersion: ", ncclGetErrorString(result)));
    constexpr int needed = nccl_allocates ? NCCL_VERSION(2, 19, 0) : NCCL_VERSION(2, 14, 0);
    if (version >= needed) return version;
    throw BackendError(text("this program was compiled for NCCL ", NCCL_VERSION_CODE, " but has loaded NCCL ",
                            version, ", which lacks functions that the program calls: expected at least ",
                            needed));
}

DPTK_INLINE NcclPeerInfo make_nccl_peer_info(int rank, int job_rank, int device) {
    NcclPeerInfo info;
    info.job_rank = job_rank;
    write_text(info.host, host_identity());
    write_text(info.label, process_label());
    record_problem(info, [&] {
        info.version = nccl_runtime_version();
        const cuda::DeviceScope on(device);
        write_text(info.bus_id, cuda::bus_id(device));
        if (rank == 0) {
            if (const ncclResult_t result = ncclGetUniqueId(&info.id); result != ncclSuccess)
                throw BackendError(text("ncclGetUniqueId: ", ncclGetErrorString(result)));
        }
    });
    return info;
}

template <class E>
[[noreturn]] void throw_agreed_error(const std::string& message) {
    E error(message);
    detail::ErrorAccess::mark_agreed(error);
    throw error;
}

DPTK_INLINE void check_nccl_peers(const std::vector<NcclPeerInfo>& peers, SharedGpus shared) {
    const auto name_of = [&](std::size_t rank) {
        return text("rank ", peers[rank].job_rank, " (", peers[rank].label.data(), ')');
    };
    std::string problems;
    for (std::size_t rank = 0; rank < peers.size(); ++rank) {
        if (peers[rank].problem[0] == '\0') continue;
        problems += text(problems.empty() ? "" : "; ", name_of(rank), ": ", peers[rank].problem.data());
    }
    if (!problems.empty()) throw_agreed_error<BackendError>("NCCL cannot connect: " + problems);
    std::map<std::pair<std::string, std::string>, std::size_t> places;
    for (std::size_t rank = 0; rank < peers.size(); ++rank) {
        if (peers[rank].version != peers[0].version) {
            throw_agreed_error<MismatchError>(text(name_of(rank), " has NCCL ", peers[rank].version, ", but ",
                                                   name_of(0), " has ", peers[0].version));
        }
        const auto [known, first] =
            places.try_emplace({peers[rank].host.data(), peers[rank].bus_id.data()}, rank);
        if (first) continue;
        const bool one_process = peers[rank].label == peers[known->second].label;
        if (shared == SharedGpus::allowed && !one_process) continue;
        throw_agreed_error<ArgumentError>(text(
            name_of(known->second), " and ", name_of(rank), " are both on GPU ", peers[rank].bus_id.data(),
            ", which NCCL refuses. Give each rank its own device with "
            "cuda::set_device(group.local_rank()) or CUDA_VISIBLE_DEVICES; or stage device memory "
            "through the host with DPTK_DEVICE_BACKEND=staged; or make NCCL treat them as ranks of "
            "different hosts with DPTK_NCCL_SHARE_GPU=1"));
    }
}

DPTK_INLINE void set_unique_host_id() {
    ::setenv("NCCL_HOSTID", text(host_name(), '-', ::getpid()).c_str(), 0);
}

DPTK_INLINE std::vector<NcclPeerInfo> exchange_peer_info_in_store(Store& store, const std::string& name,
                                                                  int rank, int size, const NcclPeerInfo& own,
                                                                  const JobState& job_state,
                                                                  std::chrono::milliseconds timeout) {
    const auto key = [&](int of) { return text(name, "/info/", of); };
    constexpr std::chrono::milliseconds slice{200};
    const Deadline deadline(timeout);
    store.set(key(rank), own.bytes());
    std::vector<NcclPeerInfo> peers;
    while (static_cast<int>(peers.size()) < size) {
        job_state.check();
        try {
            const auto left = std::clamp(deadline.left(), std::chrono::milliseconds(1), slice);
            peers.push_back(NcclPeerInfo::from_bytes(store.get(key(static_cast<int>(peers.size())), left)));
        } catch (const TimeoutError&) {
            if (!deadline.passed()) continue;
            std::string missing;
            for (int other = 0; other < size; ++other) {
                if (!store.find(key(other))) missing += text(missing.empty() ? "" : ", ", other);
            }
            throw TimeoutError(text("rank ", rank, ": NCCL: connecting: timed out after ",
                                    duration_text(timeout), ", missing ranks ", missing, " of ", size));
        }
    }
    return peers;
}

}  // namespace DPTK_NAMESPACE::detail
