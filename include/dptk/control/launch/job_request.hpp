/// Options of init_process_group (timeout, heartbeat timeout, backend, init method, rank, world size, store,
/// network interface, bind address, token), and the job request that combines them with environment
/// variables and the launcher's variables.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>

#include "dptk/control/launch/init_method.hpp"
#include "dptk/control/launch/launcher.hpp"
#include "dptk/control/store/store.hpp"
#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE {

/// Options of init_process_group. An option that is not set is read from the environment variable that its
/// comment names, or else from the variables of the launcher (docs/launching.md).
struct InitOptions {
    /// The transport: "mpi" or "gloo"; if empty, the one that fits the launcher. DPTK_BACKEND.
    std::string backend = {};
    /// The init method: "env://", "tcp://host:port", "file:///path", "mpi://" or "slurm://".
    /// DPTK_INIT_METHOD.
    std::string init_method = {};
    /// The rank of this process. RANK or the launcher's variable.
    std::optional<int> rank = {};
    /// The number of processes. WORLD_SIZE or the launcher's variable.
    std::optional<int> world_size = {};
    /// The time limit of the rendezvous and of each call. DPTK_TIMEOUT, in seconds.
    std::optional<std::chrono::milliseconds> timeout = {};
    /// How long a rank may send no heartbeat before it is considered lost; at most the timeout.
    /// DPTK_HEARTBEAT_TIMEOUT, in seconds.
    std::optional<std::chrono::milliseconds> heartbeat_timeout = {};
    /// The store for the rendezvous, instead of an init_method: a store that all processes can access, and
    /// that only this job uses.
    std::shared_ptr<Store> store = {};
    /// The network interface, or the address of this host, that TCP and Gloo use. DPTK_SOCKET_IFNAME or
    /// GLOO_SOCKET_IFNAME.
    std::string network_interface = {};
    /// The address of this host at which rank 0 serves the store. If empty, a loopback address if MASTER_ADDR
    /// is one, or if all ranks of a job over MPI are on one host; otherwise all addresses. DPTK_BIND_ADDRESS.
    std::string bind_address = {};
    /// The token that each process sends to rank 0's store, which refuses processes with another token. Do
    /// not pass it on a command line, which all users of a host can read. DPTK_TOKEN, or the file that
    /// DPTK_TOKEN_FILE names.
    std::string token = {};
    /// Whether the program continues when ranks are lost, leave or join: see docs/elastic.md. They do if
    /// `dptk-run --elastic` has started the ranks; otherwise the option has no effect.
    bool elastic = false;
};

/// The settings of a job after options and environment have been combined.
struct JobRequest {
    LaunchEnvironment launch;                     ///< The launcher, and what its variables say.
    std::string backend;                          ///< The name of the transport; empty: any that fits.
    InitMethod method;                            ///< How the processes find each other.
    std::chrono::milliseconds timeout;            ///< The time limit of the rendezvous and of each call.
    std::chrono::milliseconds heartbeat_timeout;  ///< How long a rank may send no heartbeat.
    std::shared_ptr<Store> store;                 ///< The program's own store; null if it has none.
    std::string network_interface;                ///< The interface or address that TCP and Gloo use.
    std::string bind_address;                     ///< The address at which rank 0 serves the store.
    std::string token;                            ///< What processes must send to rank 0's store.
    /// The host and port of an elastic job's store; empty if the job is not elastic.
    std::string elastic_address = {};
    /// The store of one generation of an elastic job, which outlives its ranks.
    std::shared_ptr<Store> generation_store = {};
};

namespace detail {

/// Returns the value of an environment variable, or an empty string.
[[nodiscard]] std::string environment_text(const char* variable);

/// Reads a duration in seconds, such as "2.5". Returns nullopt if the variable is not set or empty. Throws
/// ArgumentError for an invalid value.
[[nodiscard]] std::optional<std::chrono::milliseconds> environment_seconds(const char* variable);

/// Returns `value`, which is the value of an environment variable, as a duration; nullopt if it is empty.
/// Throws ArgumentError if it is not a number of seconds.
[[nodiscard]] std::optional<std::chrono::milliseconds> parse_seconds(const char* variable,
                                                                     const std::string& value);

/// Returns the token of DPTK_TOKEN, or of the file that DPTK_TOKEN_FILE names; empty if neither is set.
/// Throws ArgumentError if the file has no token.
[[nodiscard]] std::string environment_token();

/// Returns what processes must send to the store of an elastic job: the user's token and the job's name.
[[nodiscard]] std::string elastic_token(const std::string& token, const std::string& run_id);

/// Returns the option, or the value of the environment variable if the option is empty.
[[nodiscard]] std::string first_of(std::string option, const char* variable);

/// Returns the network interface for TCP and Gloo from the environment, or an empty string.
[[nodiscard]] std::string socket_interface();

/// Returns the duration, limited to longest_wait. Throws ArgumentError, with `what` as the name of the
/// duration, if the duration is not positive.
[[nodiscard]] std::chrono::milliseconds positive(const char* what, std::chrono::milliseconds duration);

}  // namespace detail

/// Combines the options with the environment. Throws ArgumentError for invalid values and for
/// contradictions.
[[nodiscard]] JobRequest resolve(const InitOptions& options);

}  // namespace DPTK_NAMESPACE

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/control/launch/job_request.ipp"
#endif
