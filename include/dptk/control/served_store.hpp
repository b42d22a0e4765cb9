/// Stores that this process serves to its job, and how the other processes get there. A server lives until
/// the program ends, so that a rank which has left its group does not take the others' control plane along.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "dptk/control/host.hpp"
#include "dptk/control/prefix_store.hpp"
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

    /// A store of this process's, at a port that is chosen here. Serves from the first call on.
    [[nodiscard]] std::pair<std::shared_ptr<Store>, StoreInvitation> invite() {
        const std::lock_guard lock(mutex_);
        if (!private_) {
            token_ = random_token();
            private_ = std::make_unique<TcpStoreServer>(TcpStoreServerOptions{.token = token_});
        }
        StoreInvitation invitation{detail::text("job", ++invitations_), token_, detail::host_word(),
                                   private_->port(), own_addresses()};
        return {std::make_shared<PrefixStore>(private_->local(), invitation.prefix), std::move(invitation)};
    }

    /// The store at a port that the user has chosen; the same one for the same options.
    [[nodiscard]] std::shared_ptr<Store> serve(const TcpStoreServerOptions& options) {
        const std::lock_guard lock(mutex_);
        for (const Server& server : chosen_) {
            if (server.options.port == options.port && server.options.bind_address == options.bind_address &&
                server.options.token == options.token) {
                return server.server->local();
            }
        }
        chosen_.push_back({options, std::make_unique<TcpStoreServer>(options)});
        return chosen_.back().server->local();
    }

    /// Blocks, for at most `timeout`, until the clients have been sent what is there for them: before this
    /// process ends in a hurry.
    void flush(std::chrono::milliseconds timeout) {
        const std::lock_guard lock(mutex_);
        if (private_) private_->flush(timeout);
        for (const Server& server : chosen_) server.server->flush(timeout);
    }

  private:
    struct Server {
        TcpStoreServerOptions options;
        std::unique_ptr<TcpStoreServer> server;
    };

    struct AtProgramEnd {
        StoreServers& servers;
        ~AtProgramEnd() { servers.close(); }
    };

    StoreServers() = default;

    void close() {
        const std::lock_guard lock(mutex_);
        private_.reset();
        chosen_.clear();
    }

    [[nodiscard]] static std::string random_token() {
        std::random_device device;
        std::string out;
        for (int i = 0; i < 4; ++i) {
            char digits[9];
            std::snprintf(digits, sizeof digits, "%08x", static_cast<unsigned>(device()));
            out += digits;
        }
        return out;
    }

    std::mutex mutex_;
    std::unique_ptr<TcpStoreServer> private_;
    std::string token_;
    std::vector<Server> chosen_;
    int invitations_ = 0;
};

/// Connects to the store that a process has invited to, trying its addresses in turn. Throws TimeoutError,
/// with what each address said, where none is reached within `timeout`.
[[nodiscard]] inline std::shared_ptr<Store> accept_invitation(const StoreInvitation& invitation,
                                                              std::chrono::milliseconds timeout,
                                                              std::chrono::milliseconds reply_timeout) {
    std::vector<std::string> addresses = invitation.addresses;
    // Loopback comes last in the list, and reaches the right host only where it is this one.
    if (invitation.host == detail::host_word()) std::ranges::reverse(addresses);
    const detail::Deadline deadline(timeout);
    std::string problems;
    for (std::size_t i = 0; i < addresses.size(); ++i) {
        const auto share = deadline.left() / static_cast<std::int64_t>(addresses.size() - i);
        try {
            const auto store = TcpStore::connect({addresses[i], invitation.port},
                                                 {.token = invitation.token, .timeout = share});
            store->set_reply_timeout(reply_timeout);
            return std::make_shared<PrefixStore>(store, invitation.prefix);
        } catch (const Error& error) {
            problems += (problems.empty() ? "" : "; ") + std::string(error.what());
        }
    }
    throw TimeoutError(problems);
}

}  // namespace dptk
