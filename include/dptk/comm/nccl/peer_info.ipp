#pragma once

#include "dptk/comm/nccl/peer_info.hpp"

#include <unistd.h>

#include <map>
#include <utility>

#include "dptk/control/process/deadline.hpp"
#include "dptk/control/net/host.hpp"
#include "dptk/core/error.hpp"
#include "dptk/core/detail/text.hpp"

namespace DPTK_NAMESPACE::detail {

DPTK_INLINE NcclCard NcclCard::from_bytes(std::string_view bytes) {
    NcclCard card;
    if (bytes.size() != sizeof card) throw MismatchError("the ranks use different versions of dptk");
    std::memcpy(&card, bytes.data(), sizeof card);
    return card;
}

/// The version of the library that is loaded, as NCCL_VERSION_CODE. Throws BackendError where it is too old
/// for what this program has been compiled to call.
[[nodiscard]] DPTK_INLINE int nccl_runtime_version() {
    int version = 0;
    if (const ncclResult_t result = ncclGetVersion(&version); result != ncclSuccess)
        throw BackendError(text("ncclGetVersion: ", ncclGetErrorString(result)));
    constexpr int needed = nccl_allocates ? NCCL_VERSION(2, 19, 0) : NCCL_VERSION(2, 14, 0);
    if (version >= needed) return version;
    throw BackendError(text("this program was compiled for NCCL ", NCCL_VERSION_CODE, " and has loaded NCCL ",
                            version, ", which lacks functions that it calls"));
}

DPTK_INLINE NcclCard make_nccl_card(int rank, int job_rank, int device) {
    NcclCard card;
    card.job_rank = job_rank;
    write_text(card.host, host_identity());
    write_text(card.label, process_label());
    note_problem(card, [&] {
        card.version = nccl_runtime_version();
        const cuda::DeviceScope on(device);
        write_text(card.bus_id, cuda::bus_id(device));
        if (rank == 0) {
            if (const ncclResult_t result = ncclGetUniqueId(&card.id); result != ncclSuccess)
                throw BackendError(text("ncclGetUniqueId: ", ncclGetErrorString(result)));
        }
    });
    return card;
}

template <class E>
[[noreturn]] void throw_agreed_error(const std::string& message) {
    E error(message);
    error.mark_agreed();
    throw error;
}

DPTK_INLINE void check_nccl_cards(const std::vector<NcclCard>& cards, SharedGpus shared) {
    const auto who = [&](std::size_t rank) {
        return text("rank ", cards[rank].job_rank, " (", cards[rank].label.data(), ')');
    };
    std::string problems;
    for (std::size_t rank = 0; rank < cards.size(); ++rank) {
        if (cards[rank].problem[0] == '\0') continue;
        problems += text(problems.empty() ? "" : "; ", who(rank), ": ", cards[rank].problem.data());
    }
    if (!problems.empty()) throw_agreed_error<BackendError>("NCCL cannot connect: " + problems);
    std::map<std::pair<std::string, std::string>, std::size_t> places;
    for (std::size_t rank = 0; rank < cards.size(); ++rank) {
        if (cards[rank].version != cards[0].version) {
            throw_agreed_error<MismatchError>(text(who(rank), " has NCCL ", cards[rank].version, ", where ",
                                                   who(0), " has ", cards[0].version));
        }
        const auto [place, first] =
            places.try_emplace({cards[rank].host.data(), cards[rank].bus_id.data()}, rank);
        if (first) continue;
        const bool one_process = cards[rank].label == cards[place->second].label;
        if (shared == SharedGpus::allowed && !one_process) continue;
        throw_agreed_error<ArgumentError>(text(
            who(place->second), " and ", who(rank), " are both on GPU ", cards[rank].bus_id.data(),
            ", which NCCL refuses. Give each a device of its own by cuda::set_device(group.local_rank()) or "
            "CUDA_VISIBLE_DEVICES; or let device memory travel through the host, by "
            "DPTK_DEVICE_BACKEND=staged; or let NCCL take them for ranks of different hosts, by "
            "DPTK_NCCL_SHARE_GPU=1"));
    }
}

DPTK_INLINE void pose_as_own_host() {
    ::setenv("NCCL_HOSTID", text(host_name(), '-', ::getpid()).c_str(), 0);
}

DPTK_INLINE std::vector<NcclCard> exchange_cards_in_store(Store& store, const std::string& name, int rank,
                                                          int size, const NcclCard& own,
                                                          const JobHealth& health,
                                                          std::chrono::milliseconds timeout) {
    const auto key = [&](int of) { return text(name, "/card/", of); };
    constexpr std::chrono::milliseconds moment{200};
    const Deadline deadline(timeout);
    store.set(key(rank), own.bytes());
    std::vector<NcclCard> cards;
    while (static_cast<int>(cards.size()) < size) {
        health.check();
        try {
            const auto left = std::clamp(deadline.left(), std::chrono::milliseconds(1), moment);
            cards.push_back(NcclCard::from_bytes(store.get(key(static_cast<int>(cards.size())), left)));
        } catch (const TimeoutError&) {
            if (!deadline.passed()) continue;
            std::string missing;
            for (int other = 0; other < size; ++other) {
                if (!store.find(key(other))) missing += text(missing.empty() ? "" : ", ", other);
            }
            throw TimeoutError(text("rank ", rank, ": NCCL: not all ranks have come within ",
                                    duration_text(timeout), "; missing: ", missing));
        }
    }
    return cards;
}

}  // namespace DPTK_NAMESPACE::detail
