/// Groups over TCP by the Gloo library. Including this header makes Gloo available to init_process_group:
/// ranks that dptk-run, torchrun or srun has started, or that are told where to meet, find each other without
/// MPI.
#pragma once

#include <memory>

#include "dptk/comm/gloo/transport.hpp"
#include "dptk/comm/process_group.hpp"
#include "dptk/comm/registry.hpp"
#include "dptk/comm/shm.hpp"
#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE {

/// Made through any Store: GlooCommunicator(GlooTransport({.rank = r, .size = n, .store = store})).
/// init_process_group makes groups over Gloo by itself.
using GlooCommunicator = BasicCommunicator<GlooTransport>;

namespace detail {

/// Whatever is no MPI launcher's, and those where the program says itself how the ranks find each other.
[[nodiscard]] Fit gloo_fit(const JobRequest& request);

[[nodiscard]] ProcessGroup create_gloo_group(const JobRequest& asked);

[[nodiscard]] std::unique_ptr<Channel> create_gloo_subgroup(const SubgroupRequest& request);

inline const bool gloo_is_registered =
    register_transport({"gloo", gloo_fit, create_gloo_group, create_gloo_subgroup});

}  // namespace detail

}  // namespace DPTK_NAMESPACE

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/comm/gloo.ipp"
#endif
