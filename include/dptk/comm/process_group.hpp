/// ProcessGroup is a communicator whose transport is known only at run time. init_process_group and
/// launch_threads give one, any communicator moves into one, and everything above comm/ takes a
/// ProcessGroup&.
#pragma once

#include <chrono>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "dptk/comm/communicator.hpp"
#include "dptk/comm/detail/device_call.hpp"
#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE {

/// The color of ranks that split() puts into no group, as MPI_UNDEFINED.
inline constexpr int no_color = -1;

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
    explicit ProcessGroup(std::unique_ptr<detail::Channel> channel);

    /// Whether this rank is in the group. Using a group that it is not in, or that was moved from, throws
    /// ArgumentError.
    [[nodiscard]] bool is_member() const noexcept { return channel_ != nullptr; }

    /// An independent group over the same ranks, for work in the background: its calls never meet this
    /// group's. Collective. Throws ArgumentError where the transport has no duplicate().
    [[nodiscard]] ProcessGroup duplicate();

    /// A group of these ranks, in this order; on the other ranks, one that they are not in. It is independent
    /// of this group and may outlive it, but they fail together. Collective over this group: all ranks call
    /// it, with the same arguments, those that are not in the subgroup as well. Throws, on all ranks,
    /// ArgumentError where the ranks are none, not in this group or not different, and MismatchError where
    /// the arguments differ.
    [[nodiscard]] ProcessGroup subgroup(std::span<const int> ranks, const SubgroupOptions& options = {});

    /// The same for ranks that are written down: group.subgroup({0, 2}).
    [[nodiscard]] ProcessGroup subgroup(std::initializer_list<int> ranks,
                                        const SubgroupOptions& options = {});

    /// One group for each color, of the ranks that give it, ordered by key and then by rank. A rank that
    /// gives no_color is in none. Collective. Throws ArgumentError on all ranks for other negative colors.
    [[nodiscard]] ProcessGroup split(int color, int key = 0, const SubgroupOptions& options = {});

    /// One group for each host, of the ranks on it. Collective.
    [[nodiscard]] ProcessGroup split_by_host(const SubgroupOptions& options = {});

    /// The engine below: what all verbs go through. Throws ArgumentError where this rank is not in the group.
    [[nodiscard]] detail::Channel& channel();
    /// The same.
    [[nodiscard]] const detail::Channel& channel() const;

  private:
    struct Outsider {
        std::string why;
    };

    explicit ProcessGroup(Outsider outsider);

    void check_member() const;

    [[nodiscard]] static std::string describe(const SubgroupOptions& options);

    [[nodiscard]] bool over_own_transport(const SubgroupOptions& options) const;

    [[nodiscard]] std::string problem_with(const SubgroupOptions& options) const;

    [[nodiscard]] std::string problem_with(std::span<const int> ranks, const SubgroupOptions& options) const;

    [[nodiscard]] ProcessGroup make_subgroup(std::span<const int> ranks, const SubgroupOptions& options);

    [[nodiscard]] std::unique_ptr<detail::Channel> subgroup_over(std::span<const int> ranks,
                                                                 const SubgroupOptions& options);

    std::unique_ptr<detail::Channel> channel_;
    std::string why_empty_;
};

}  // namespace DPTK_NAMESPACE

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/comm/process_group.ipp"
#endif
