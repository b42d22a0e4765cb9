/// Registers the Gloo transport (TCP) with init_process_group, which then connects ranks without MPI. Either
/// dptk-run, torchrun or srun starts the ranks, or the program specifies the rendezvous.
#pragma once

#include <memory>

#include "dptk/comm/communicator.hpp"
#include "dptk/comm/gloo/transport.hpp"
#include "dptk/comm/init.hpp"
#include "dptk/comm/process_group.hpp"
#include "dptk/comm/registry.hpp"
#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE {

/// A communicator over Gloo. It connects through any Store:
/// GlooCommunicator(GlooTransport({.rank = r, .size = n, .store = store})). init_process_group creates groups
/// over Gloo by itself.
using GlooCommunicator = BasicCommunicator<GlooTransport>;

namespace detail {

/// Returns how well Gloo fits the job: best if the program specifies a rendezvous, or if torchrun or dptk-run
/// has started the ranks. Gloo does not fit a rendezvous by MPI. A program that includes <dptk/comm/tcp.hpp>
/// uses Gloo only if it asks for this backend.
[[nodiscard]] Fit gloo_fit(const JobRequest& request);

[[nodiscard]] ProcessGroup create_gloo_group(const JobRequest& request);

[[nodiscard]] EngineOwner create_gloo_subgroup(const SubgroupRequest& request);

inline const bool gloo_is_registered =
    register_transport({GlooFactory::name, gloo_fit, create_gloo_group, create_gloo_subgroup});

}  // namespace detail

}  // namespace DPTK_NAMESPACE

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/comm/gloo.ipp"
#endif
