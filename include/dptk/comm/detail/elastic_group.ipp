#pragma once

#include "dptk/comm/detail/elastic_group.hpp"

#include <atomic>
#include <optional>
#include <string>
#include <utility>

#include "dptk/comm/registry.hpp"
#include "dptk/comm/self.hpp"
#include "dptk/control/launch/init_method.hpp"
#include "dptk/control/store/tcp_store.hpp"
#include "dptk/core/detail/parse.hpp"
#include "dptk/core/detail/text.hpp"
#include "dptk/core/log.hpp"

namespace DPTK_NAMESPACE::detail {

DPTK_INLINE bool ElasticGroup::serves(const JobRequest& request) {
    return !request.elastic_address.empty();
}

DPTK_INLINE std::shared_ptr<Store> ElasticGroup::open_store(const JobRequest& request,
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

DPTK_INLINE ElasticGroup::ElasticGroup(const JobRequest& request)
    : request_(request),
      membership_({.store = open_store(request, request.elastic_address, request.timeout),
                   .id = member_of_launcher(),
                   .heartbeat_timeout = request.heartbeat_timeout,
                   .open_second = [request](const std::string& address) {
                       return open_store(request, address, request.heartbeat_timeout);
                   }}) {}

DPTK_INLINE ProcessGroup ElasticGroup::join(const JobRequest& request) {
    static std::atomic<bool> has_joined = false;
    if (has_joined.exchange(true))
        throw ArgumentError("init_process_group: a process can join an elastic job only once");
    const std::shared_ptr<ElasticGroup> elastic(new ElasticGroup(request));
    if (elastic->membership_.has_begun())
        log(LogLevel::info, -1, "this process joins a running job at its first step");
    ProcessGroup group{SelfCommunicator(SelfTransport(request.timeout))};
    group.elastic_ = elastic;
    return group;
}

DPTK_INLINE bool ElasticGroup::has_changed(const ProcessGroup& group) const {
    return !group.is_member() || membership_.generation().number == 0 ||
           group.channel().control().job_state()->failed();
}

DPTK_INLINE bool ElasticGroup::is_complete(const ProcessGroup& group) {
    return group.elastic_ && group.elastic_->is_complete_;
}

DPTK_INLINE const Generation& ElasticGroup::generation(const ProcessGroup& group) {
    return group.elastic_->membership_.generation();
}

DPTK_INLINE void ElasticGroup::finish(const ProcessGroup& group) {
    if (group.elastic_) group.elastic_->membership_.note_finishing();
}

DPTK_INLINE void ElasticGroup::reform(ProcessGroup& group, const std::function<void()>& exchange_state) {
    if (!group.elastic_) throw ArgumentError("reform: the group does not belong to an elastic job");
    ElasticGroup& elastic = *group.elastic_;
    elastic.is_complete_ = false;
    while (true) {
        if (elastic.has_changed(group)) {
            if (group.is_member() && group.rank() == 0 && group.size() > 1)
                log(LogLevel::info, 0,
                    text("the ranks of the job change: ", group.channel().control().job_state()->cause()));
            group.channel_.reset();
            group.why_empty_ = "this group of an elastic job could not be formed again";
            group.channel_ = std::move(elastic.connect().channel_);
        }
        try {
            if (exchange_state) exchange_state();
            group.barrier();
            elastic.membership_.note_formed();
            elastic.is_complete_ = true;
            return;
        } catch (const MembershipChanged&) {  // another change: once more
        }
    }
}

DPTK_INLINE ProcessGroup ElasticGroup::connect() {
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
