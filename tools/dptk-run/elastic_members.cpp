#include "elastic_members.hpp"

#include <dptk/control/elastic/membership_keys.hpp>
#include <dptk/control/launch/job_request.hpp>
#include <dptk/control/net/host.hpp>
#include <dptk/core/detail/text.hpp>

#include <cstdint>

namespace run {

namespace {

using dptk::detail::MemberId;
using dptk::detail::MembershipKeys;
using dptk::detail::MembershipMonitor;
using dptk::detail::text;

dptk::detail::MembershipRules rules_of(const Job& job) {
    return {.first_size = static_cast<std::size_t>(job.local_size),
            .heartbeat_timeout = job.heartbeat_timeout,
            .timeout = dptk::detail::environment_seconds("DPTK_TIMEOUT").value_or(dptk::default_timeout)};
}

}  // namespace

ElasticMembers::ElasticMembers(const Job& job)
    : server_({.bind_address = dptk::detail::loopback_address(),
               .token = dptk::detail::elastic_token(dptk::detail::environment_token(), job.run_id)}),
      store_(server_.local()),
      host_(dptk::detail::loopback_address()),
      monitor_(rules_of(job), MembershipMonitor::clock::now()) {}

MemberId ElasticMembers::add() {
    return store_->add(MembershipKeys::members, 1);
}

std::vector<dptk::detail::EnvironmentVariable> ElasticMembers::environment(MemberId member) const {
    return {{"DPTK_ELASTIC", text(host_, ':', server_.port())}, {"DPTK_MEMBER", text(member)}};
}

void ElasticMembers::note_end(MemberId member, const dptk::detail::ChildEnd& end) {
    has_finished_ = has_finished_ || (end.well() && over().empty());
    store_->compare_and_set(
        MembershipKeys::ended(member), "",
        end.well() ? std::string(MembershipKeys::finished) : text("has ended: ", end.text()));
    look();
}

void ElasticMembers::look() {
    monitor_.look(*store_, MembershipMonitor::clock::now());
}

}  // namespace run
