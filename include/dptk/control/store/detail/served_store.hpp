/// Served stores: TCP stores that this process serves to its job, and the endpoints through which other
/// processes connect. A server runs until the program ends, so that the control plane of the other ranks
/// keeps working after this rank has left its group.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "dptk/control/net/host.hpp"
#include "dptk/control/process/fork_guard.hpp"
#include "dptk/control/process/random_word.hpp"
#include "dptk/control/store/prefix_store.hpp"
#include "dptk/control/store/tcp_store_server.hpp"
#include "dptk/core/config.hpp"
#include "dptk/core/detail/text.hpp"

namespace DPTK_NAMESPACE::detail {

/// Endpoint of a store: the addresses to try, and the token that the server expects.
struct StoreEndpoint {
    std::string prefix;
    std::string token;
    std::string host;
    std::uint16_t port = 0;
    std::vector<std::string> addresses;

    /// Serializes the endpoint to one line.
    [[nodiscard]] std::string to_text() const;

    /// Parses the result of to_text(). Throws FormatError if `line` is not an endpoint.
    [[nodiscard]] static StoreEndpoint parse(std::string_view line);
};

class DPTK_EXPORT StoreServers {
  public:
    [[nodiscard]] static StoreServers& get() {
        static StoreServers& servers = *new StoreServers;
        static const AtProgramEnd at_program_end{servers};
        return servers;
    }

    StoreServers(const StoreServers&) = delete;
    StoreServers& operator=(const StoreServers&) = delete;

    /// Serves a store at a free port, and returns the store and its endpoint. Listens on `bind_address`, or
    /// on all addresses of this host if `bind_address` is empty.
    [[nodiscard]] std::pair<std::shared_ptr<Store>, StoreEndpoint> serve_at_free_port(
        const std::string& bind_address) {
        static const std::string token = random_word();
        static std::atomic<int> count = 0;
        const std::shared_ptr<TcpStoreServer> server =
            find_or_make({.bind_address = bind_address, .token = token});
        StoreEndpoint endpoint{text("job", ++count), token, host_word(), server->port(),
                               bind_address.empty() ? own_addresses() : std::vector{bind_address}};
        return {std::make_shared<PrefixStore>(server->local(), endpoint.prefix), std::move(endpoint)};
    }

    /// Serves a store at the given port. Returns the same store for equal options.
    [[nodiscard]] std::shared_ptr<Store> serve(const TcpStoreServerOptions& options);

  private:
    struct Server {
        TcpStoreServerOptions options;
        std::shared_ptr<TcpStoreServer> server;
        ForkGuard fork_guard = {};
    };

    struct AtProgramEnd {
        StoreServers& servers;
        ~AtProgramEnd();
    };

    StoreServers() = default;

    [[nodiscard]] std::shared_ptr<TcpStoreServer> find(const TcpStoreServerOptions& options);

    [[nodiscard]] std::shared_ptr<TcpStoreServer> find_or_make(const TcpStoreServerOptions& options);

    /// Closes the servers. Leaks those of the process from which this one was forked.
    void close();

    std::mutex mutex_;
    std::vector<Server> servers_;
};

/// Connects to the store at an endpoint: tries the addresses in turn until the timeout. Throws TimeoutError
/// with the last error of each address if no connection succeeds.
[[nodiscard]] std::shared_ptr<Store> connect_to_endpoint(const StoreEndpoint& endpoint,
                                                         std::chrono::milliseconds timeout,
                                                         std::chrono::milliseconds reply_timeout);

}  // namespace DPTK_NAMESPACE::detail

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/control/store/detail/served_store.ipp"
#endif
