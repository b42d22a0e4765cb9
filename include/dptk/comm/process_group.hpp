/// ProcessGroup is a communicator whose transport is chosen at run time (type-erased), like PyTorch's
/// ProcessGroup. init_process_group returns a ProcessGroup, any BasicCommunicator can be moved into a
/// ProcessGroup, and all of dptk outside comm/ accepts a ProcessGroup&.
#pragma once

#include <chrono>
#include <concepts>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "dptk/comm/communicator.hpp"
#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE {

namespace detail {

class ElasticGroup;

}  // namespace detail

/// The color of ranks that split() puts into no group, like MPI_UNDEFINED.
inline constexpr int no_color = -1;

/// Options of ProcessGroup's subgroup, split and split_by_host.
struct SubgroupOptions {
    /// The timeout of every call in the subgroup. The default is the group's timeout. All ranks must pass the
    /// same value.
    std::optional<std::chrono::milliseconds> timeout = std::nullopt;
    /// The subgroup's transport: "tcp", "gloo", or empty for the group's own transport.
    std::string backend = {};
};

/// A group of ranks with collectives and point-to-point messages, over any transport. init_process_group,
/// launch_threads and spawn create groups of this type. A ProcessGroup can be moved, but not copied. Its
/// destructor completes the started operations. During exception unwinding the destructor does not
/// communicate but marks the job as failed, so that the other ranks end as well.
class ProcessGroup : public CollectiveVerbs<ProcessGroup>,
                     public CoalescedVerbs<ProcessGroup>,
                     public ObjectVerbs<ProcessGroup>,
                     public MessageVerbs<ProcessGroup> {
  public:
    /// Creates a group that owns `communicator`.
    template <std::derived_from<Transport> T>
    ProcessGroup(BasicCommunicator<T>&& communicator)  // NOLINT(google-explicit-constructor): a widening
        : ProcessGroup(std::move(communicator).release()) {}

    /// Creates a group that owns an existing engine.
    explicit ProcessGroup(detail::EngineOwner engine);

    /// Returns whether this rank is in the group; false if the group was moved from. If it is false, all
    /// other calls throw ArgumentError.
    [[nodiscard]] bool is_member() const noexcept { return engine_ != nullptr; }

    /// Returns the job's rank of each member, in the group's order: ranks()[rank()] is this process's rank in
    /// the group that init_process_group() has returned. Does not communicate.
    [[nodiscard]] const std::vector<int>& ranks() const;

    /// Returns the group's name in messages, such as "0.1-2". It is the same on all members, and no two
    /// groups of a job have the same name. Does not communicate.
    [[nodiscard]] const std::string& name() const;

    /// Returns a description of the group for bug reports: dptk's version, the transport, and the host and
    /// process of each member. It is the same on all members. Collective; blocks.
    [[nodiscard]] std::string describe();

    /// Creates an independent group over the same ranks, as MPI_Comm_dup does, for example for background
    /// communication. Its calls never match this group's calls. Collective. Throws ArgumentError if the
    /// transport has no duplicate().
    [[nodiscard]] ProcessGroup duplicate();

    /// Creates a group of the given ranks, in the given order. Ranks that are not listed get a group whose
    /// is_member() is false. The subgroup is independent of this group and may outlive it, but if one of the
    /// two groups fails, the other fails as well. Collective over this group: all of its ranks make this call
    /// with the same arguments, including the ranks that are not listed. Throws on all ranks: ArgumentError
    /// if `ranks` is empty, contains a rank twice, or contains a rank that is not in this group;
    /// MismatchError if the arguments differ between ranks.
    [[nodiscard]] ProcessGroup subgroup(std::span<const int> ranks, const SubgroupOptions& options = {});

    /// Overload that takes an initializer list: group.subgroup({0, 2}).
    [[nodiscard]] ProcessGroup subgroup(std::initializer_list<int> ranks,
                                        const SubgroupOptions& options = {});

    /// Creates one group per color, as MPI_Comm_split does. Each group contains the ranks that pass its
    /// color, ordered by key and then by rank. A rank that passes no_color is in no group. Collective. Throws
    /// ArgumentError on all ranks if any rank passes a negative color other than no_color.
    [[nodiscard]] ProcessGroup split(int color, int key = 0, const SubgroupOptions& options = {});

    /// Creates one group per host, and returns the group of the ranks on this rank's host. Collective.
    [[nodiscard]] ProcessGroup split_by_host(const SubgroupOptions& options = {});

    /// Returns whether the group belongs to an elastic job (see elastic.hpp). Its calls then throw
    /// MembershipChanged if the members of the job change.
    [[nodiscard]] bool is_elastic() const noexcept { return elastic_ != nullptr; }

    /// Throws MembershipChanged if the members of an elastic job have changed without this rank, as while its
    /// process was stopped. Call it right before an effect that the group does not see, such as that on a
    /// file which another rank may own by now. Asks the job's store; not collective. Does nothing if the job
    /// is not elastic.
    void check_membership() const;

    /// Throws ArgumentError, with `who` as the name of the class, if the group belongs to an elastic job.
    void refuse_elastic(std::string_view who) const;

    /// Returns the engine that executes all calls. For internal use by dptk: the interface of the engine
    /// may change in any version. Throws ArgumentError if this rank is not in the group.
    [[nodiscard]] detail::Engine& engine();
    /// Returns the engine that executes all calls. For internal use by dptk: the interface of the engine
    /// may change in any version. Throws ArgumentError if this rank is not in the group.
    [[nodiscard]] const detail::Engine& engine() const;

  private:
    friend class detail::ElasticGroup;

    struct NonMember {
        std::string why;
    };

    explicit ProcessGroup(NonMember non_member);

    void check_member() const;

    [[nodiscard]] static std::string option_text(const SubgroupOptions& options);

    [[nodiscard]] bool over_own_transport(const SubgroupOptions& options) const;

    [[nodiscard]] std::string problem_with(const SubgroupOptions& options) const;

    [[nodiscard]] std::string problem_with(std::span<const int> ranks, const SubgroupOptions& options) const;

    [[nodiscard]] ProcessGroup make_subgroup(std::span<const int> ranks, const SubgroupOptions& options);

    [[nodiscard]] detail::EngineOwner subgroup_over(std::span<const int> ranks,
                                                    const SubgroupOptions& options);

    detail::EngineOwner engine_;
    std::string why_empty_;
    std::shared_ptr<detail::ElasticGroup> elastic_;  // null if the job is not elastic
};

}  // namespace DPTK_NAMESPACE

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/comm/process_group.ipp"
#endif
