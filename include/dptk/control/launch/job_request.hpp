/// What a program asks of init_process_group, by options or by the environment, and what comes out of both.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>

#include "dptk/control/launch/init_method.hpp"
#include "dptk/control/launch/launch.hpp"
#include "dptk/control/store/store.hpp"
#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE {

/// Every option that is left out comes from the environment, as docs/launching.md tells, and then from the
/// launcher's.
struct InitOptions {
    /// "mpi" or "gloo"; empty for whichever serves the launcher. DPTK_BACKEND
    std::string backend = {};
    /// "env://", "tcp://host:port", "file:///path", "mpi://" or "slurm://". DPTK_INIT_METHOD
    std::string init_method = {};
    /// RANK or the launcher's variable.
    std::optional<int> rank = {};
    /// WORLD_SIZE or the launcher's variable.
    std::optional<int> world_size = {};
    /// Of the rendezvous and of every call. DPTK_TIMEOUT, in seconds
    std::optional<std::chrono::milliseconds> timeout = {};
    /// How long a rank may be silent before it counts as lost; at most the timeout. DPTK_HEARTBEAT_TIMEOUT,
    /// in seconds
    std::optional<std::chrono::milliseconds> heartbeat_timeout = {};
    /// Where the processes meet, in place of init_method: any store that all of them reach, used by this job
    /// alone.
    std::shared_ptr<Store> store = {};
    /// The network interface, or the address of this host, that Gloo uses. DPTK_SOCKET_IFNAME, or
    /// GLOO_SOCKET_IFNAME
    std::string network_interface = {};
    /// The address of this host at which rank 0 serves the store; empty for all of them. DPTK_BIND_ADDRESS
    std::string bind_address = {};
    /// Shown by every process that comes to rank 0's store, so that strangers are refused. DPTK_TOKEN
    std::string token = {};
};

/// The same with all that could be found out.
struct JobRequest {
    LaunchEnvironment launch;
    std::string backend;
    InitMethod method;
    std::chrono::milliseconds timeout;
    std::chrono::milliseconds heartbeat_timeout;
    std::shared_ptr<Store> store;
    std::string network_interface;
    std::string bind_address;
    std::string token;
};

namespace detail {

[[nodiscard]] std::string environment_text(const char* variable);

[[nodiscard]] std::string first_of(std::string option, const char* variable);

/// On which Gloo connects, where the program does not say.
[[nodiscard]] std::string socket_interface();

[[nodiscard]] std::chrono::milliseconds positive(const char* what, std::chrono::milliseconds duration);

}  // namespace detail

/// Throws ArgumentError for a value that makes no sense, and for sources that contradict each other.
[[nodiscard]] JobRequest resolve(const InitOptions& options);

}  // namespace DPTK_NAMESPACE

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/control/launch/job_request.ipp"
#include "dptk/core/error.hpp"
#endif
