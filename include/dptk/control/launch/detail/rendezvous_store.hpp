/// Rendezvous store: opens the store through which the processes of a job find each other. Rank 0 serves it
/// at an address that all processes know, or publishes its endpoint in a file or store that all processes
/// can access.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "dptk/control/launch/job_request.hpp"
#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE::detail {

struct RendezvousStore {
    std::shared_ptr<Store> store;
    /// Where the processes find the store, for messages: "tcp://10.0.0.1:29500".
    std::string where;
    /// An object that, when destroyed, erases the key through which other processes find the store. The
    /// object must exist until the rendezvous is complete. May be null.
    std::shared_ptr<void> keep_alive = nullptr;
};

/// The key of the prefix of the keys of the job that runs, in a store that rank 0 serves at a known address.
inline constexpr std::string_view running_key = "running";

/// Returns the token of the job: that of the user, and what the launcher calls the run.
[[nodiscard]] std::string job_token(const JobRequest& request);

/// Opens the rendezvous store of the job that `request` describes. Rank 0 serves the store; the other ranks
/// block until they can connect, for at most the request's timeout. Throws ArgumentError for invalid
/// settings, and TimeoutError if rank 0 is not reachable.
[[nodiscard]] RendezvousStore open_rendezvous_store(const JobRequest& request);

}  // namespace DPTK_NAMESPACE::detail

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/control/launch/detail/rendezvous_store.ipp"
#endif
