#pragma once

#include "dptk/control/store/detail/served_store.hpp"

#include <algorithm>

#include "dptk/control/process/deadline.hpp"
#include "dptk/control/store/tcp_store.hpp"
#include "dptk/core/detail/algorithms.hpp"
#include "dptk/core/detail/parse.hpp"
#include "dptk/core/error.hpp"

namespace DPTK_NAMESPACE::detail {

DPTK_INLINE std::string StoreEndpoint::to_text() const {
    std::string out = text(prefix, ' ', token, ' ', port, ' ', host);
    for (const std::string& address : addresses) out += ' ' + address;
    return out;
}

DPTK_INLINE StoreEndpoint StoreEndpoint::parse(std::string_view line) {
    StoreEndpoint out;
    out.prefix = next_word(line);
    out.token = next_word(line);
    const std::string_view port = next_word(line);
    if (!parse_number(port, out.port)) {
        throw FormatError(
            text("invalid store endpoint: expected 'PREFIX TOKEN PORT HOST ADDRESS...', got the port '", port,
                 "'"));
    }
    out.host = next_word(line);
    while (!line.empty()) out.addresses.emplace_back(next_word(line));
    return out;
}

DPTK_INLINE std::shared_ptr<Store> StoreServers::serve(const TcpStoreServerOptions& options) {
    return find_or_make(options)->local();
}

DPTK_INLINE StoreServers::AtProgramEnd::~AtProgramEnd() {
    servers.close();
}

DPTK_INLINE std::shared_ptr<TcpStoreServer> StoreServers::find(const TcpStoreServerOptions& options) {
    const std::lock_guard lock(mutex_);
    for (const Server& server : servers_) {
        if (server.options.port == options.port && server.options.bind_address == options.bind_address &&
            server.options.token == options.token) {
            return server.server;
        }
    }
    return nullptr;
}

DPTK_INLINE std::shared_ptr<TcpStoreServer> StoreServers::find_or_make(const TcpStoreServerOptions& options) {
    if (auto server = find(options)) return server;
    auto made = std::make_shared<TcpStoreServer>(options);  // may throw, so the lock is not held
    const std::lock_guard lock(mutex_);
    servers_.push_back({options, made});
    return made;
}

DPTK_INLINE void StoreServers::close() {
    std::vector<Server> servers;
    const std::lock_guard lock(mutex_);
    servers.swap(servers_);
    for (const Server& server : servers) {
        if (server.fork_guard.is_in_child()) keep_for_ever(server.server);
    }
}

DPTK_INLINE std::shared_ptr<Store> connect_to_endpoint(const StoreEndpoint& endpoint,
                                                       std::chrono::milliseconds timeout,
                                                       std::chrono::milliseconds reply_timeout) {
    using std::chrono::milliseconds;
    std::vector<std::string> addresses = endpoint.addresses;
    // Loopback addresses are last in the list, since from another host they lead to the wrong host. On the
    // host of the store they are tried first.
    if (endpoint.host == host_word()) detail::reverse(addresses);
    if (addresses.empty())
        throw ArgumentError(text("the store on port ", endpoint.port,
                                 " has no address: expected at least one network interface on the host of "
                                 "rank 0"));
    const Deadline deadline(timeout);
    // A host may have addresses that lead nowhere from here: short attempts at first find the others soon.
    milliseconds limit(100);
    while (true) {
        std::string problems;
        for (const std::string& address : addresses) {
            try {
                const milliseconds attempt_timeout = std::clamp(deadline.left(), milliseconds(1), limit);
                const auto store = TcpStore::connect({address, endpoint.port},
                                                     {.token = endpoint.token, .timeout = attempt_timeout});
                store->set_reply_timeout(reply_timeout);
                return std::make_shared<PrefixStore>(store, endpoint.prefix);
            } catch (const ArgumentError&) {  // the store has refused the token
                throw;
            } catch (const Error& error) {
                problems += (problems.empty() ? "" : "; ") + std::string(error.what());
            }
        }
        if (deadline.passed()) throw TimeoutError(problems);
        AwakeClock::sleep_for(std::min(deadline.left(), milliseconds(10)));
        limit = std::min(2 * limit, milliseconds(1000));
    }
}

}  // namespace DPTK_NAMESPACE::detail
