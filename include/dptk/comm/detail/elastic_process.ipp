#pragma once

#include "dptk/comm/detail/elastic_process.hpp"

#include <atomic>
#include <optional>
#include <string>
#include <utility>

#include "dptk/comm/registry.hpp"
#include "dptk/control/launch/init_method.hpp"
#include "dptk/control/store/tcp_store.hpp"
#include "dptk/core/detail/parse.hpp"
#include "dptk/core/detail/text.hpp"
#include "dptk/core/log.hpp"

namespace DPTK_NAMESPACE::detail {

DPTK_INLINE bool ElasticProcess::serves(const JobRequest& request) {
    return !request.elastic_address.empty();
}

DPTK_INLINE std::shared_ptr<Store> ElasticProcess::open_store(const JobRequest& request,
                                                              const std::string& address,
                                                              std::chrono::milliseconds timeout) {
    SocketAddress place = parse_address("DPTK_ELASTIC=" + address, address, "host:port");
    auto store = TcpStore::connect(
        {std::move(place.host), place.port},
        {.token = elastic_token(request.token, environment_text("DPTK_RUN_ID")), .timeout = timeout});
    store->set_reply_timeout(request.heartbeat_timeout);
    return store;
}

/// Returns the number of the member that the launcher has given this process; 0 if it has given none.
[[nodiscard]] DPTK_INLINE MemberId member_of_launcher() {
    const std::string number = environment_text("DPTK_MEMBER");
    MemberId id = 0;
    if (number.empty()) return id;
    if (!parse_number(number, id) || id < 1)
        throw ArgumentError(text("invalid DPTK_MEMBER='", number, "': expected a number from 1"));
    return id;
}

DPTK_INLINE ElasticProcess::ElasticProcess(const JobRequest& request)
    : request_(request),
      membership_({.store = open_store(request, request.elastic_address, request.timeout),
                   .id = member_of_launcher(),
                   .heartbeat_timeout = request.heartbeat_timeout,
                   .open_second = [request](const std::string& address) {
                       return open_store(request, address, request.heartbeat_timeout);
                   }}) {}

DPTK_INLINE ProcessGroup ElasticProcess::join(const JobRequest& request) {
    static std::atomic<bool> has_joined = false;
    if (has_joined.exchange(true))
        throw ArgumentError("init_process_group: a process can join an elastic job only once");
    std::shared_ptr<ElasticProcess> elastic(new ElasticProcess(request));
    if (elastic->membership_.has_begun())
        log(LogLevel::info, -1, "this process joins a running job at its first step");
    return start(std::move(elastic), request.timeout);
}

DPTK_INLINE ProcessGroup ElasticProcess::connect() {
    while (true) {
        const Generation& generation = membership_.join();
        JobRequest request = request_;
        request.launch.rank = generation.rank_of(membership_.id());
        request.launch.world_size = static_cast<int>(generation.members.size());
        try {
            request.generation_store = membership_.store_of_generation();
            const std::optional<TransportEntry> transport = choose_transport(request);
            if (!transport)
                throw ArgumentError(
                    "an elastic job needs a transport that connects through a store: include "
                    "<dptk/comm/tcp.hpp> in a source file that is linked into the program itself");
            return transport->create(request);
        } catch (const PeerLostError& error) {
            log(LogLevel::info, request.launch.rank, text("another change of the members: ", error.what()));
        }
    }
}

}  // namespace DPTK_NAMESPACE::detail
