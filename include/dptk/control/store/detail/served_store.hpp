/// Stores that this process serves to its job, and how the other processes get there. A server lives until
/// the program ends, so that a rank which has left its group does not take the others' control plane along.
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

#include "dptk/control/health/rank_status.hpp"
#include "dptk/control/net/host.hpp"
#include "dptk/control/process/random_word.hpp"
#include "dptk/control/store/prefix_store.hpp"
#include "dptk/control/store/tcp_store_server.hpp"
#include "dptk/core/config.hpp"
#include "dptk/core/detail/text.hpp"

namespace DPTK_NAMESPACE::detail {

/// How another process reaches a store: a token that only the invited know, and the addresses to try.
struct StoreEndpoint {
    std::string prefix;
    std::string token;
    std::string host;
    std::uint16_t port = 0;
    std::vector<std::string> addresses;

    [[nodiscard]] std::string to_text() const;

    /// Throws FormatError for a text that is no invitation.
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

    /// A store of this process's, at a port that is chosen here, on one address of this host or, where it is
    /// empty, on all.
    [[nodiscard]] std::pair<std::shared_ptr<Store>, StoreEndpoint> invite(const std::string& bind_address) {
        static const std::string token = random_word();
        static std::atomic<int> invitations = 0;
        const std::shared_ptr<TcpStoreServer> server =
            find_or_make({.bind_address = bind_address, .token = token});
        StoreEndpoint invitation{text("job", ++invitations), token, host_word(), server->port(),
                                 bind_address.empty() ? own_addresses() : std::vector{bind_address}};
        return {std::make_shared<PrefixStore>(server->local(), invitation.prefix), std::move(invitation)};
    }

    /// The store at a port that the user has chosen; the same one for the same options.
    [[nodiscard]] std::shared_ptr<Store> serve(const TcpStoreServerOptions& options);

  private:
    struct Server {
        TcpStoreServerOptions options;
        std::shared_ptr<TcpStoreServer> server;
    };

    struct AtProgramEnd {
        StoreServers& servers;
        ~AtProgramEnd();
    };

    StoreServers() = default;

    [[nodiscard]] std::shared_ptr<TcpStoreServer> find(const TcpStoreServerOptions& options);

    [[nodiscard]] std::shared_ptr<TcpStoreServer> find_or_make(const TcpStoreServerOptions& options);

    void close();

    std::mutex mutex_;
    std::vector<Server> servers_;
};

/// Connects to the store that a process has invited to, trying its addresses in turn until the timeout.
/// Throws TimeoutError, with what each address said last, where none is reached.
[[nodiscard]] std::shared_ptr<Store> connect_to_endpoint(const StoreEndpoint& invitation,
                                                         std::chrono::milliseconds timeout,
                                                         std::chrono::milliseconds reply_timeout);

}  // namespace DPTK_NAMESPACE::detail

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/control/store/detail/served_store.ipp"
#endif
