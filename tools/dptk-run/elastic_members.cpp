#include "elastic_members.hpp"

#include <dptk/control/elastic/membership_keys.hpp>
#include <dptk/control/launch/init_method.hpp>
#include <dptk/control/launch/job_request.hpp>
#include <dptk/control/net/host.hpp>
#include <dptk/core/detail/text.hpp>
#include <dptk/core/log.hpp>

#include <chrono>
#include <cstddef>
#include <utility>

#include "nodes.hpp"

namespace run {

namespace {

using dptk::detail::MemberId;
using dptk::detail::MembershipKeys;
using dptk::detail::MembershipMonitor;
using dptk::detail::MembershipServer;
using dptk::detail::text;

/// Set when the first store is ready.
constexpr std::string_view open_key = "open";
/// Set when a process has completed the program.
constexpr std::string_view finished_key = "finished";
/// The numbers of processes that begin with the second store are larger, so that none is given twice.
constexpr MemberId numbers_of_second = 1'000'000;
/// How long the other store may need for a reply, since dptk-run does nothing else meanwhile.
constexpr std::chrono::milliseconds second_timeout{5000};

std::chrono::milliseconds timeout() {
    return dptk::detail::environment_seconds("DPTK_TIMEOUT").value_or(dptk::default_timeout);
}

std::string token_of(const Job& job) {
    return dptk::detail::elastic_token(dptk::detail::environment_token(), job.run_id);
}

dptk::detail::MembershipRules rules_of(const Job& job) {
    return {
        .first_size = static_cast<std::size_t>(job.local_size) * static_cast<std::size_t>(job.options.nnodes),
        .least_launchers = job.options.nnodes,
        .heartbeat_timeout = job.heartbeat_timeout,
        .timeout = timeout()};
}

}  // namespace

ElasticMembers::ElasticMembers(const Job& job)
    : job_(job),
      server_(serve_first(job)),
      first_(first_store(job, server_.get())),
      can_serve_second_(!server_ && !is_on_this_host(job.options.master_addr)) {
    if (!server_) static_cast<void>(first_.store().get(open_key, timeout()));
    node_ = static_cast<int>(first_.arrive()) - 1;
    check_number_of_hosts();
    if (server_) {
        // So that its ranks are the first ones, and half of the ranks continues if this host is among them.
        reserved_ = job.local_size;
        first_.store().add(MembershipKeys::members, reserved_);
        first_.store().set(open_key, "");
    } else {
        watch_.emplace(first_.store().clone(), job.heartbeat_timeout);
    }
    find_second();
}

ElasticMembers::~ElasticMembers() {
    if (serves_second_) first_.erase(MembershipKeys::second);
    if (running_.empty()) first_.set(MembershipKeys::launcher_ended(node_ + 1), "left");
}

void ElasticMembers::check_number_of_hosts() {
    int others = 0;
    for (int launcher = 1; launcher <= node_; ++launcher)
        if (first_.may_run(launcher)) ++others;
    if (others < job_.options.max_nnodes) return;
    first_.set(MembershipKeys::launcher_ended(node_ + 1), "left");
    throw dptk::ArgumentError(text("--nnodes ", job_.options.nnodes, ':', job_.options.max_nnodes,
                                   ": as many hosts take part already"));
}

/// Returns null if another host serves the store, or another dptk-run on this host.
std::unique_ptr<MembershipServer> ElasticMembers::serve_first(const Job& job) {
    dptk::TcpStoreServerOptions options{.bind_address = dptk::detail::loopback_address(),
                                        .token = token_of(job)};
    if (job.has_several_hosts()) {
        if (job.options.node_rank > 0 || !is_on_this_host(job.options.master_addr)) return nullptr;
        options.port = static_cast<std::uint16_t>(job.options.master_port);
        options.bind_address = dptk::detail::environment_text("DPTK_BIND_ADDRESS");
    }
    try {
        return std::make_unique<MembershipServer>(options, rules_of(job));
    } catch (const dptk::PortInUseError&) {
        if (job.options.node_rank == 0) throw;
        return nullptr;
    }
}

JobStore ElasticMembers::first_store(const Job& job, const MembershipServer* server) {
    const std::string host =
        job.has_several_hosts() ? job.options.master_addr : dptk::detail::loopback_address();
    if (server) return {server->local(), {host, server->port()}};
    return {{host, static_cast<std::uint16_t>(job.options.master_port)},
            {.token = token_of(job), .timeout = timeout()},
            job.heartbeat_timeout};
}

void ElasticMembers::find_second() {
    if (serves_second_ || !first_.lost().empty()) return;
    const std::string address =
        watch_ ? watch_->seen().second : first_.find(MembershipKeys::second).value_or("");
    try {
        if (!address.empty()) {
            reach_second(address);
        } else if (can_serve_second_) {
            serve_second();
        }
    } catch (const dptk::Error& error) {
        second_.reset();
        can_serve_second_ = false;
        dptk::log(dptk::LogLevel::warning, -1,
                  text("this host does not take part in the job's second store, so that the loss of ",
                       job_.options.master_addr, " may end the job: ", error.what()));
    }
}

void ElasticMembers::serve_second() {
    dptk::detail::MembershipRules rules = rules_of(job_);
    rules.is_second = true;
    const std::string bound = dptk::detail::environment_text("DPTK_BIND_ADDRESS");
    auto server = std::make_unique<MembershipServer>(
        dptk::TcpStoreServerOptions{.bind_address = bound, .token = token_of(job_)}, rules);
    const dptk::TcpStoreAddress address{bound.empty() ? first_.store().connection().own : bound,
                                        server->port()};
    JobStore store(server->local(), address);
    store.add(MembershipKeys::members, numbers_of_second);
    store.set(MembershipKeys::standby, "");
    static_cast<void>(store.arrive());
    store.note_members(members_);
    first_.set(MembershipKeys::second_of(node_ + 1), address.text());
    if (first_.set_first(MembershipKeys::second, address.text()) != address.text()) return;
    server_ = std::move(server);
    second_.emplace(std::move(store));
    serves_second_ = true;
}

void ElasticMembers::reach_second(const std::string& address) {
    if (std::exchange(tried_, address) == address) return;
    dptk::detail::SocketAddress place = dptk::detail::parse_address("second store", address, "host:port");
    second_.emplace(dptk::TcpStoreAddress{std::move(place.host), place.port},
                    dptk::TcpStoreOptions{.token = token_of(job_), .timeout = second_timeout},
                    second_timeout);
    static_cast<void>(second_->arrive());
    second_->note_members(members_);
}

/// Copies what the second store must know of the first one, until that is lost.
void ElasticMembers::stand_by(const StoreWatch::Seen& first) {
    if (std::exchange(copied_, first.latest) != first.latest)
        second_->set(MembershipKeys::elsewhere, first.latest);
    if (first.lost.empty()) return;
    if (first.is_out_of_date) second_->set(MembershipKeys::out_of_date, "");
    second_->erase(MembershipKeys::standby);
}

void ElasticMembers::look() {
    if (server_) server_->look();
    if (watch_) {
        const StoreWatch::Seen first = watch_->seen();
        if (!first.latest.empty()) has_begun_ = true;
        if (serves_second_) stand_by(first);
        if (!first.lost.empty()) {
            first_.lose(first.lost);
            watch_.reset();
            return;
        }
    }
    find_second();
}

JobStore& ElasticMembers::current() {
    if (!second_) return first_;
    const std::int64_t in_first = first_.latest();
    if (!first_.lost().empty()) return *second_;
    return second_->latest() > in_first ? *second_ : first_;
}

MemberId ElasticMembers::add() {
    MemberId member = given_ < reserved_ ? ++given_ : current().add(MembershipKeys::members, 1);
    if (member == 0) member = current().add(MembershipKeys::members, 1);  // the first store was just lost
    if (member == 0) throw dptk::PeerLostError(over());
    running_.insert(member);
    members_ += text(members_.empty() ? "" : " ", member);
    first_.note_members(members_);
    if (second_) second_->note_members(members_);
    return member;
}

std::vector<dptk::detail::EnvironmentVariable> ElasticMembers::environment(MemberId member) {
    return {{"DPTK_ELASTIC", current().address().text()}, {"DPTK_MEMBER", text(member)}};
}

void ElasticMembers::note_end(MemberId member, const dptk::detail::ChildEnd& end) {
    running_.erase(member);
    const bool finished = end.well() && !current().find(MembershipKeys::over);
    if (finished) has_finished_ = true;  // also if the store has ended meanwhile, with all other ranks
    const std::string how =
        end.well() ? std::string(MembershipKeys::finished) : text("has ended: ", end.text());
    if (finished) first_.set(finished_key, "");
    first_.note_end(member, how);
    if (second_) {
        if (finished) second_->set(finished_key, "");
        // What it knew: it may have continued with the first store without those that come to the second one.
        second_->note_end(member, how, first_.find(MembershipKeys::vote(member)).value_or(""));
    }
    look();
}

std::string ElasticMembers::over() {
    JobStore& store = current();
    const std::string why = store.find(MembershipKeys::over).value_or("");
    return store.lost().empty() ? why
                                : text("the host that serves the store of the job is lost: ", store.lost());
}

bool ElasticMembers::has_begun() {
    if (!has_begun_) has_begun_ = current().latest() > 0;
    return has_begun_;
}

bool ElasticMembers::has_finished() {
    return has_finished_ || first_.find(finished_key) || (second_ && second_->find(finished_key));
}

bool ElasticMembers::is_needed() const {
    return server_ && server_->has_members();
}

bool ElasticMembers::others_have_finished() {
    return over() == MembershipMonitor::all_have_finished;
}

}  // namespace run
