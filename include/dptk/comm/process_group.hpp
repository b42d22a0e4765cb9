/// ProcessGroup is a communicator whose transport is known only at run time. init_process_group and
/// launch_threads give one, any communicator moves into one, and everything above comm/ takes a
/// ProcessGroup&.
#pragma once

#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "dptk/comm/agreement.hpp"
#include "dptk/comm/communicator.hpp"
#include "dptk/comm/registry.hpp"
#include "dptk/comm/routed_channel.hpp"
#include "dptk/control/host.hpp"

namespace dptk {

/// Options of ProcessGroup's subgroup, split and split_by_host.
struct SubgroupOptions {
    /// Of every call in the subgroup; the group's own where it is not given. All ranks give the same.
    std::optional<std::chrono::milliseconds> timeout = std::nullopt;
    /// "gloo": over Gloo, whatever the group's own transport is; empty for that one.
    std::string backend = {};
};

/// Moved, never copied. Closing it (destruction) completes what was started; where an exception unwinds
/// past it, it communicates no more and marks the job as broken, so that the other ranks end as well.
/// Groups that init_process_group, launch_threads and spawn give are of this type.
class ProcessGroup : public CollectiveVerbs<ProcessGroup>, public MessageVerbs<ProcessGroup> {
  public:
    /// The group takes the communicator over.
    template <Transport T>
    ProcessGroup(BasicCommunicator<T>&& communicator)  // NOLINT(google-explicit-constructor): a widening
        : ProcessGroup(std::move(communicator).release()) {}

    /// Goes on with a channel that there is.
    explicit ProcessGroup(std::unique_ptr<Channel> channel) : channel_(std::move(channel)) {
        if (channel_ && !channel_->serves_devices())
            channel_ = std::make_unique<detail::RoutedChannel>(std::move(channel_));
    }

    /// Whether this rank is in the group. Using a group that it is not in, or that was moved from, throws
    /// ArgumentError.
    [[nodiscard]] bool is_member() const noexcept { return channel_ != nullptr; }

    /// An independent group over the same ranks, for work in the background: its calls never meet this
    /// group's. Collective. Throws ArgumentError where the transport has no duplicate().
    [[nodiscard]] ProcessGroup duplicate() {
        std::unique_ptr<Channel> copy = channel().duplicate();
        if (!copy) throw ArgumentError("the transport " + backend() + " has no duplicate()");
        return ProcessGroup(std::move(copy));
    }

    /// A group of these ranks, in this order; on the other ranks, one that they are not in. It is independent
    /// of this group and may outlive it, but they fail together. Collective over this group: all ranks call
    /// it, with the same arguments, those that are not in the subgroup as well. Throws, on all ranks,
    /// ArgumentError where the ranks are none, not in this group or not different, and MismatchError where
    /// the arguments differ.
    [[nodiscard]] ProcessGroup subgroup(std::span<const int> ranks, const SubgroupOptions& options = {}) {
        detail::check_no_problem<ArgumentError>(*this, problem_with(ranks, options));
        detail::check_equal_tables(*this, "subgroups",
                                   detail::text("the ranks ", detail::list_text(ranks), describe(options)));
        return make_subgroup(ranks, options);
    }

    /// The same for ranks that are written down: group.subgroup({0, 2}).
    [[nodiscard]] ProcessGroup subgroup(std::initializer_list<int> ranks,
                                        const SubgroupOptions& options = {}) {
        return subgroup(std::span(ranks.begin(), ranks.size()), options);
    }

    /// One group for each color, of the ranks that give it, ordered by key and then by rank. A rank that
    /// gives no_color is in none. Collective. Throws ArgumentError on all ranks for other negative colors.
    [[nodiscard]] ProcessGroup split(int color, int key = 0, const SubgroupOptions& options = {}) {
        detail::check_no_problem<ArgumentError>(
            *this, color < no_color ? detail::text("split with color ", color) : problem_with(options));
        detail::check_equal_tables(*this, "subgroups", "a split" + describe(options));
        const std::vector<int> colors = all_gather_value(color);
        const std::vector<int> keys = all_gather_value(key);
        std::vector<int> ranks;
        for (int other = 0; other < size(); ++other) {
            if (colors[static_cast<std::size_t>(other)] == color && color != no_color) ranks.push_back(other);
        }
        std::ranges::stable_sort(ranks, {}, [&](int other) { return keys[static_cast<std::size_t>(other)]; });
        return make_subgroup(ranks, options);
    }

    /// One group for each host, of the ranks on it. Collective.
    [[nodiscard]] ProcessGroup split_by_host(const SubgroupOptions& options = {}) {
        const std::vector<std::string> hosts = detail::all_gather_text(*this, host_identity());
        const auto first = std::ranges::find(hosts, hosts[static_cast<std::size_t>(rank())]);
        return split(static_cast<int>(first - hosts.begin()), 0, options);
    }

    /// The engine below: what all verbs go through. Throws ArgumentError where this rank is not in the group.
    [[nodiscard]] Channel& channel() {
        check_member();
        return *channel_;
    }
    /// The same.
    [[nodiscard]] const Channel& channel() const {
        check_member();
        return *channel_;
    }

  private:
    struct Outsider {
        std::string why;
    };

    explicit ProcessGroup(Outsider outsider) : why_empty_(std::move(outsider.why)) {}

    void check_member() const {
        if (channel_) return;
        throw ArgumentError(why_empty_.empty() ? "this process group was moved from" : why_empty_);
    }

    [[nodiscard]] static std::string describe(const SubgroupOptions& options) {
        return (options.timeout ? ", timeout " + detail::duration_text(*options.timeout) : "") +
               (options.backend.empty() ? "" : ", backend " + options.backend);
    }

    [[nodiscard]] bool over_own_transport(const SubgroupOptions& options) const {
        return options.backend.empty() || options.backend == backend();
    }

    [[nodiscard]] std::string problem_with(const SubgroupOptions& options) const {
        if (options.timeout && options.timeout->count() <= 0)
            return detail::text("a subgroup's timeout of ", options.timeout->count(), " ms");
        if (over_own_transport(options))
            return channel().has_subgroups() ? "" : "the transport " + backend() + " has no subgroup()";
        const std::vector<TransportEntry> entries = registered_transports();
        const TransportEntry* entry = detail::find_transport(entries, options.backend);
        if (entry == nullptr)
            return "this program has no backend " + options.backend + ": include <dptk/comm/" +
                   options.backend + ".hpp>";
        if (entry->create_subgroup == nullptr || !channel().control().has_store())
            return "a group over " + backend() + " has no subgroups over " + options.backend;
        return {};
    }

    [[nodiscard]] std::string problem_with(std::span<const int> ranks, const SubgroupOptions& options) const {
        const auto say = [&](std::string_view what) {
            return detail::text("subgroup of the ranks ", detail::list_text(ranks), ": ", what);
        };
        if (ranks.empty()) return "subgroup of no ranks";
        for (const int rank : ranks) {
            if (rank < 0 || rank >= size())
                return say(detail::text("rank ", rank, " is outside [0, ", size() - 1, "]"));
            if (std::ranges::count(ranks, rank) > 1)
                return say(detail::text("rank ", rank, " is there twice"));
        }
        return problem_with(options);
    }

    [[nodiscard]] ProcessGroup make_subgroup(std::span<const int> ranks, const SubgroupOptions& options) {
        const int own = rank();
        std::unique_ptr<Channel> part = over_own_transport(options)
                                            ? channel().subgroup(ranks, options.timeout)
                                            : subgroup_over(ranks, options);
        if (part) return ProcessGroup(std::move(part));
        return ProcessGroup(Outsider{detail::text("rank ", own, " is not in this group, which has the ranks ",
                                                  detail::list_text(ranks))});
    }

    [[nodiscard]] std::unique_ptr<Channel> subgroup_over(std::span<const int> ranks,
                                                         const SubgroupOptions& options) {
        const std::vector<std::string> hosts = detail::all_gather_text(*this, host_identity());
        SubgroupRequest request{.rank = static_cast<int>(std::ranges::find(ranks, rank()) - ranks.begin()),
                                .hosts = {},
                                .identity = channel().next_identity(ranks, options.timeout),
                                .job = channel().job()};
        if (request.rank == static_cast<int>(ranks.size())) return nullptr;
        for (const int member : ranks) request.hosts.push_back(hosts[static_cast<std::size_t>(member)]);
        const std::vector<TransportEntry> entries = registered_transports();
        const TransportEntry* entry = detail::find_transport(entries, options.backend);
        std::unique_ptr<Channel> part;
        break_job_unless_agreed(request.job, [&] { part = entry->create_subgroup(request); });
        return part;
    }

    std::unique_ptr<Channel> channel_;
    std::string why_empty_;
};

}  // namespace dptk
