#include "elastic_members.hpp"

#include <dptk/control/elastic/membership_keys.hpp>
#include <dptk/control/launch/job_request.hpp>
#include <dptk/control/net/host.hpp>
#include <dptk/core/detail/text.hpp>

#include <cstddef>
#include <cstdint>
#include <utility>

#include "nodes.hpp"

namespace run {

namespace {

using dptk::detail::MemberId;
using dptk::detail::MembershipKeys;
using dptk::detail::MembershipMonitor;
using dptk::detail::text;

/// Set when a process has completed the program.
constexpr std::string_view finished_key = "finished";

std::chrono::milliseconds timeout() {
    return dptk::detail::environment_seconds("DPTK_TIMEOUT").value_or(dptk::default_timeout);
}

std::string token_of(const Job& job) {
    return dptk::detail::elastic_token(dptk::detail::environment_token(), job.run_id);
}

}  // namespace

ElasticMembers::ElasticMembers(const Job& job)
    : server_(serve(job)),
      address_{job.has_several_hosts() ? job.options.master_addr : dptk::detail::loopback_address(),
               server_ ? server_->port() : static_cast<std::uint16_t>(job.options.master_port)},
      store_(open_store(job)) {
    if (server_) {
        const auto first_size =
            static_cast<std::size_t>(job.local_size) * static_cast<std::size_t>(job.options.nnodes);
        const dptk::detail::MembershipRules rules{
            .first_size = first_size, .heartbeat_timeout = job.heartbeat_timeout, .timeout = timeout()};
        monitor_.emplace(rules, MembershipMonitor::clock::now());
    }
    if (!server_) static_cast<void>(store_->get("open", timeout()));
    node_ = static_cast<int>(store_->add("nodes", 1)) - 1;
    if (server_) {
        // So that its ranks are the first ones, and half of the ranks continues if this host is among them.
        reserved_ = job.local_size;
        store_->add(MembershipKeys::members, reserved_);
        store_->set("open", "");
    }
}

/// Returns null if another host serves the store, or another dptk-run on this host.
std::unique_ptr<dptk::TcpStoreServer> ElasticMembers::serve(const Job& job) {
    dptk::TcpStoreServerOptions options{.bind_address = dptk::detail::loopback_address(),
                                        .token = token_of(job)};
    if (job.has_several_hosts()) {
        if (job.options.node_rank > 0 || !is_on_this_host(job.options.master_addr)) return nullptr;
        options.port = static_cast<std::uint16_t>(job.options.master_port);
        options.bind_address = dptk::detail::environment_text("DPTK_BIND_ADDRESS");
    }
    try {
        return std::make_unique<dptk::TcpStoreServer>(options);
    } catch (const dptk::PortInUseError&) {
        if (job.options.node_rank == 0) throw;
        return nullptr;
    }
}

std::shared_ptr<dptk::Store> ElasticMembers::open_store(const Job& job) {
    if (server_) return server_->local();
    auto store = dptk::TcpStore::connect(address_, {.token = token_of(job), .timeout = timeout()});
    store->set_reply_timeout(job.heartbeat_timeout);
    return store;
}

MemberId ElasticMembers::add() {
    if (given_ < reserved_) return ++given_;
    return store_->add(MembershipKeys::members, 1);
}

std::vector<dptk::detail::EnvironmentVariable> ElasticMembers::environment(MemberId member) const {
    return {{"DPTK_ELASTIC", address_.text()}, {"DPTK_MEMBER", text(member)}};
}

template <class Call>
void ElasticMembers::with_store(Call&& call) {
    if (!lost_.empty()) return;
    try {
        call(*store_);
    } catch (const dptk::Error& error) {
        lost_ = text("the host that serves the store of the job is lost: ", error.what());
    }
}

void ElasticMembers::note_end(MemberId member, const dptk::detail::ChildEnd& end) {
    const bool finished = end.well() && over().empty();
    with_store([&](dptk::Store& store) {
        if (finished) store.set(finished_key, "");
        store.compare_and_set(
            MembershipKeys::ended(member), "",
            end.well() ? std::string(MembershipKeys::finished) : text("has ended: ", end.text()));
    });
    look();
}

void ElasticMembers::look() {
    if (!monitor_) return;
    monitor_->look(*store_, MembershipMonitor::clock::now());
    monitor_->erase_earlier(*server_);
}

std::string ElasticMembers::over() {
    std::string why;
    with_store([&](dptk::Store& store) { why = store.find(MembershipKeys::over).value_or(""); });
    return lost_.empty() ? why : lost_;
}

bool ElasticMembers::has_begun() {
    bool found = false;
    with_store([&](dptk::Store& store) { found = store.find(MembershipKeys::latest).has_value(); });
    return found;
}

bool ElasticMembers::has_finished() {
    bool found = false;
    with_store([&](dptk::Store& store) { found = store.find(finished_key).has_value(); });
    return found;
}

bool ElasticMembers::is_needed() const {
    return monitor_ && monitor_->over().empty() && monitor_->has_members(MembershipMonitor::clock::now());
}

bool ElasticMembers::others_have_finished() {
    return over() == MembershipMonitor::all_have_finished;
}

}  // namespace run
