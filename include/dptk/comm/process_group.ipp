#pragma once

#include "dptk/comm/process_group.hpp"

#include <unistd.h>

#include <cstddef>
#include <string_view>
#include <vector>

#include "dptk/comm/agreement.hpp"
#include "dptk/comm/detail/elastic_group.hpp"
#include "dptk/comm/registry.hpp"
#include "dptk/control/health/control_plane.hpp"
#include "dptk/control/net/host.hpp"
#include "dptk/core/detail/algorithms.hpp"
#include "dptk/core/version.hpp"

namespace DPTK_NAMESPACE {

DPTK_INLINE ProcessGroup::ProcessGroup(detail::EngineOwner engine) : engine_(std::move(engine)) {
    if (engine_) engine_->use_devices();
}

DPTK_INLINE const std::vector<int>& ProcessGroup::ranks() const {
    return engine().identity().ranks;
}

DPTK_INLINE const std::string& ProcessGroup::name() const {
    return engine().identity().name;
}

DPTK_INLINE std::string ProcessGroup::describe() {
    const detail::PurposeScope here(engine(), {.call = "describe()", .owner = "ProcessGroup"});
    const std::string own = detail::text("local rank ", local_rank(), " of ", local_size(), " on ",
                                         detail::host_name(), ", process ", ::getpid());
    const std::vector<std::string> members = detail::all_gather_text(*this, own);
    std::string out = detail::text("dptk " DPTK_VERSION ", group ", name(), ": ", size(),
                                   size() == 1 ? " rank" : " ranks", " over ", backend(), "\n");
    for (std::size_t rank = 0; rank < members.size(); ++rank)
        out += detail::text("rank ", rank, ", rank ", ranks()[rank], " of the job: ", members[rank], "\n");
    return out;
}

DPTK_INLINE void ProcessGroup::refuse_elastic(std::string_view who) const {
    if (is_elastic())
        throw ArgumentError(detail::text(who, " does not support elastic jobs: see docs/elastic.md"));
}

DPTK_INLINE ProcessGroup ProcessGroup::duplicate() {
    return ProcessGroup(detail::duplicate_or_throw(engine()));
}

DPTK_INLINE ProcessGroup ProcessGroup::subgroup(std::span<const int> ranks, const SubgroupOptions& options) {
    detail::check_no_problem<ArgumentError>(*this, problem_with(ranks, options));
    detail::check_equal_tables(*this, "subgroups",
                               detail::text("the ranks ", detail::list_text(ranks), option_text(options)));
    return make_subgroup(ranks, options);
}

DPTK_INLINE ProcessGroup ProcessGroup::subgroup(std::initializer_list<int> ranks,
                                                const SubgroupOptions& options) {
    return subgroup(std::span(ranks.begin(), ranks.size()), options);
}

DPTK_INLINE ProcessGroup ProcessGroup::split(int color, int key, const SubgroupOptions& options) {
    detail::check_no_problem<ArgumentError>(
        *this, color < no_color
                   ? detail::text("split with color ", color, ": expected a color of at least 0, or ",
                                  "no_color (", no_color, ")")
                   : problem_with(options));
    detail::check_equal_tables(*this, "subgroups", "a split" + option_text(options));
    const std::vector<int> colors = all_gather_value(color);
    const std::vector<int> keys = all_gather_value(key);
    std::vector<int> ranks;
    for (int other = 0; other < size(); ++other) {
        if (colors[static_cast<std::size_t>(other)] == color && color != no_color) ranks.push_back(other);
    }
    detail::stable_sort(ranks, [&](int a, int b) {
        return keys[static_cast<std::size_t>(a)] < keys[static_cast<std::size_t>(b)];
    });
    return make_subgroup(ranks, options);
}

DPTK_INLINE ProcessGroup ProcessGroup::split_by_host(const SubgroupOptions& options) {
    const std::vector<std::string> hosts = detail::all_gather_text(*this, detail::host_identity());
    const auto first = detail::find(hosts, hosts[static_cast<std::size_t>(rank())]);
    return split(static_cast<int>(first - hosts.begin()), 0, options);
}

DPTK_INLINE detail::Engine& ProcessGroup::engine() {
    check_member();
    return *engine_;
}

DPTK_INLINE const detail::Engine& ProcessGroup::engine() const {
    check_member();
    return *engine_;
}

DPTK_INLINE ProcessGroup::ProcessGroup(NonMember non_member) : why_empty_(std::move(non_member.why)) {}

DPTK_INLINE void ProcessGroup::check_member() const {
    if (engine_) return;
    throw ArgumentError(why_empty_.empty() ? "this process group was moved from" : why_empty_);
}

DPTK_INLINE std::string ProcessGroup::option_text(const SubgroupOptions& options) {
    return (options.timeout ? ", timeout " + detail::duration_text(*options.timeout) : "") +
           (options.backend.empty() ? "" : ", backend " + options.backend);
}

DPTK_INLINE bool ProcessGroup::over_own_transport(const SubgroupOptions& options) const {
    return options.backend.empty() || options.backend == backend();
}

DPTK_INLINE std::string ProcessGroup::problem_with(const SubgroupOptions& options) const {
    if (options.timeout && options.timeout->count() <= 0)
        return detail::text("a subgroup's timeout of ", options.timeout->count(),
                            " ms: expected at least 1 ms");
    if (over_own_transport(options))
        return engine().has_subgroups() ? "" : "the transport " + backend() + " has no subgroup()";
    const std::vector<TransportEntry> entries = registered_transports();
    const TransportEntry* entry = detail::find_transport(entries, options.backend);
    if (entry == nullptr)
        return "this program has no backend " + options.backend + ": include <dptk/comm/" + options.backend +
               ".hpp>";
    if (entry->create_subgroup == nullptr || !engine().control()->has_store())
        return "a group over " + backend() + " cannot have subgroups over " + options.backend +
               ": either this group has no store, or " + options.backend +
               " only creates subgroups of its own groups";
    return {};
}

DPTK_INLINE std::string ProcessGroup::problem_with(std::span<const int> ranks,
                                                   const SubgroupOptions& options) const {
    const auto say = [&](std::string_view what) {
        return detail::text("subgroup of the ranks ", detail::list_text(ranks), ": ", what);
    };
    if (ranks.empty()) return "subgroup of 0 ranks: expected at least 1";
    for (const int rank : ranks) {
        if (rank < 0 || rank >= size())
            return say(detail::text("rank ", rank, " is outside [0, ", size() - 1, "]"));
        if (detail::count(ranks, rank) > 1) return say(detail::text("rank ", rank, " is listed twice"));
    }
    return problem_with(options);
}

DPTK_INLINE ProcessGroup ProcessGroup::make_subgroup(std::span<const int> ranks,
                                                     const SubgroupOptions& options) {
    const int own = rank();
    detail::EngineOwner part = over_own_transport(options) ? engine().subgroup(ranks, options.timeout)
                                                           : subgroup_over(ranks, options);
    if (part) return ProcessGroup(std::move(part));
    return ProcessGroup(NonMember{
        detail::text("rank ", own, " is not in this group, which has the ranks ", detail::list_text(ranks))});
}

DPTK_INLINE detail::EngineOwner ProcessGroup::subgroup_over(std::span<const int> ranks,
                                                            const SubgroupOptions& options) {
    const std::vector<std::string> hosts = detail::all_gather_text(*this, detail::host_identity());
    SubgroupRequest request{.rank = static_cast<int>(detail::find(ranks, rank()) - ranks.begin()),
                            .hosts = {},
                            .identity = engine().next_identity(ranks, options.timeout),
                            .control = engine().control(),
                            .progress = engine().progress()};
    if (request.rank == static_cast<int>(ranks.size())) return nullptr;
    for (const int member : ranks) request.hosts.push_back(hosts[static_cast<std::size_t>(member)]);
    const std::vector<TransportEntry> entries = registered_transports();
    const TransportEntry* entry = detail::find_transport(entries, options.backend);
    detail::EngineOwner part;
    request.control->fail_job_on_error([&] { part = entry->create_subgroup(request); });
    return part;
}

}  // namespace DPTK_NAMESPACE
