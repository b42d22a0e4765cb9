/// The store where the processes of a job meet: served by rank 0 at an address that all know, or named in a
/// file or another store that all reach.
#pragma once

#include <memory>
#include <string>

#include "dptk/control/launch/job_request.hpp"
#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE::detail {

struct RendezvousStore {
    std::shared_ptr<Store> store;
    /// For messages: "tcp://10.0.0.1:29500".
    std::string where;
    /// Keeps the place open for others until all have met, where that takes more than the store.
    std::shared_ptr<void> keep_alive = nullptr;
};

/// Where the job that `request` describes meets. Rank 0 opens the place, the others wait for it for at most
/// the request's timeout. Throws ArgumentError for what makes no sense, and TimeoutError where rank 0 is not
/// there.
[[nodiscard]] RendezvousStore open_rendezvous_store(const JobRequest& request);

}  // namespace DPTK_NAMESPACE::detail

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/control/launch/detail/rendezvous_store.ipp"
#include "dptk/core/error.hpp"
#endif
