/// Stores that this process serves to its job, and how the other processes get there. A server lives until
/// the program ends, so that a rank which has left its group does not take the others' control plane along.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "dptk/control/deadline.hpp"
#include "dptk/control/host.hpp"
#include "dptk/control/prefix_store.hpp"
#include "dptk/control/random_word.hpp"
#include "dptk/control/rank_status.hpp"
#include "dptk/control/tcp_store.hpp"
#include "dptk/control/tcp_store_server.hpp"
#include "dptk/core/error.hpp"
#include "dptk/core/export.hpp"

namespace dptk {

/// How another process reaches a store: a token that only the invited know, and the addresses to try.
struct StoreInvitation {
    std::string prefix;
    std::string token;
    std::string host;
    std::uint16_t port = 0;
    std::vector<std::string> addresses;

    [[nodiscard]] std::string to_text() const {
        std::string out = detail::text(prefix, ' ', token, ' ', port, ' ', host);
        for (const std::string& address : addresses) out += ' ' + address;
        return out;
    }

    /// Throws FormatError for a text that is no invitation.
    [[nodiscard]] static StoreInvitation parse(std::string_view line) {
        const std::string whole(line);
        StoreInvitation out;
        out.prefix = detail::next_word(line);
        out.token = detail::next_word(line);
        if (!detail::parse_number(detail::next_word(line), out.port))
            throw FormatError("no invitation to a store: " + whole);
        out.host = detail::next_word(line);
        while (!line.empty()) out.addresses.emplace_back(detail::next_word(line));
        return out;
    }
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
    [[nodiscard]] std::pair<std::shared_ptr<Store>, StoreInvitation> invite(const std::string& bind_address) {
        static const std::string token = detail::random_word();
        static std::atomic<int> invitations = 0;
        const std::shared_ptr<TcpStoreServer> server =
            find_or_make({.bind_address = bind_address, .token = token});
        StoreInvitation invitation{detail::text("job", ++invitations), token, detail::host_word(),
                                   server->port(),
                                   bind_address.empty() ? own_addresses() : std::vector{bind_address}};
        return {std::make_shared<PrefixStore>(server->local(), invitation.prefix), std::move(invitation)};
    }

    /// The store at a port that the user has chosen; the same one for the same options.
    [[nodiscard]] std::shared_ptr<Store> serve(const TcpStoreServerOptions& options) {
        return find_or_make(options)->local();
    }

  private:
    struct Server {
        TcpStoreServerOptions options;
        std::shared_ptr<TcpStoreServer> server;
    };

    struct AtProgramEnd {
        StoreServers& servers;
        ~AtProgramEnd() { servers.close(); }
    };

    StoreServers() = default;

    [[nodiscard]] std::shared_ptr<TcpStoreServer> find(const TcpStoreServerOptions& options) {
        const std::lock_guard lock(mutex_);
        for (const Server& server : servers_) {
            if (server.options.port == options.port && server.options.bind_address == options.bind_address &&
                server.options.token == options.token) {
                return server.server;
            }
        }
        return nullptr;
    }

    [[nodiscard]] std::shared_ptr<TcpStoreServer> find_or_make(const TcpStoreServerOptions& options) {
        if (auto server = find(options)) return server;
        auto made = std::make_shared<TcpStoreServer>(options);  // may throw: not under the lock
        const std::lock_guard lock(mutex_);
        servers_.push_back({options, made});
        return made;
    }

    void close() {
        std::vector<Server> servers;
        const std::lock_guard lock(mutex_);
        servers.swap(servers_);
    }

    std::mutex mutex_;
    std::vector<Server> servers_;
};

/// Connects to the store that a process has invited to, trying its addresses in turn until the timeout.
/// Throws TimeoutError, with what each address said last, where none is reached.
[[nodiscard]] inline std::shared_ptr<Store> accept_invitation(const StoreInvitation& invitation,
                                                              std::chrono::milliseconds timeout,
                                                              std::chrono::milliseconds reply_timeout) {
    using std::chrono::milliseconds;
    std::vector<std::string> addresses = invitation.addresses;
    // Loopback comes last in the list, and reaches the right host only where it is this one.
    if (invitation.host == detail::host_word()) std::ranges::reverse(addresses);
    const detail::Deadline deadline(timeout);
    while (true) {
        std::string problems;
        for (const std::string& address : addresses) {
            try {
                const milliseconds patience =
                    std::clamp(deadline.left(), milliseconds(1), milliseconds(1000));
                const auto store = TcpStore::connect({address, invitation.port},
                                                     {.token = invitation.token, .timeout = patience});
                store->set_reply_timeout(reply_timeout);
                return std::make_shared<PrefixStore>(store, invitation.prefix);
            } catch (const Error& error) {
                problems += (problems.empty() ? "" : "; ") + std::string(error.what());
            }
        }
        if (deadline.passed()) throw TimeoutError(problems);
    }
}

}  // namespace dptk
