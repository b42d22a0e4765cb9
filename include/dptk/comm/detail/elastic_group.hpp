/// Elastic group: the part of a process group that outlives the generations of an elastic job. It forms the
/// group again, in place, whenever the members of the job change.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "dptk/comm/process_group.hpp"
#include "dptk/control/elastic/generation.hpp"
#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE::detail {

class ElasticGroup {
  public:
    virtual ~ElasticGroup() = default;
    ElasticGroup(const ElasticGroup&) = delete;
    ElasticGroup& operator=(const ElasticGroup&) = delete;

    /// Returns a group of one rank, which joins the job at its first reform(). Does not wait for other ranks,
    /// so that the loss of a rank that still loads its data does not concern them.
    [[nodiscard]] static ProcessGroup start(std::shared_ptr<ElasticGroup> elastic,
                                            std::chrono::milliseconds timeout);

    /// Returns whether reform() has returned for the group's current members.
    [[nodiscard]] static bool is_complete(const ProcessGroup& group);

    /// Returns the number and the members of the group's current generation.
    [[nodiscard]] static const Generation& generation(const ProcessGroup& group);

    /// Returns why the members before these have changed; empty if that is not known.
    [[nodiscard]] static const std::string& cause(const ProcessGroup& group);

    /// See ProcessGroup::check_membership().
    static void check_membership(const ProcessGroup& group);

    /// Notes that the group has completed its work, so that nobody joins any more.
    static void finish(const ProcessGroup& group);

    /// Forms the group again, in place, if its members have changed, and calls exchange_state(); both as
    /// often as needed. Throws ArgumentError if the group does not belong to an elastic job.
    static void reform(ProcessGroup& group, const std::function<void()>& exchange_state);

  protected:
    ElasticGroup() = default;

    /// Leaves the current generation, waits for the next one that contains this rank, and connects its
    /// members. Throws PeerLostError if the job has ended.
    [[nodiscard]] virtual ProcessGroup connect() = 0;

    /// Returns the generation whose members connect() has connected last.
    [[nodiscard]] virtual const Generation& current() const = 0;

    /// Returns why the current generation has ended; nullopt while it continues.
    [[nodiscard]] virtual std::optional<std::string> why_ended() = 0;

    /// Notes that all members of the generation are connected, and have the same state.
    virtual void note_formed() = 0;

    /// Notes that the generation has completed its work, so that no new member is let in.
    virtual void note_finishing() = 0;

  private:
    /// Returns whether a member of the group was lost, leaves or joins, or this rank has not joined yet.
    [[nodiscard]] bool has_changed(const ProcessGroup& group) const;

    bool is_complete_ = false;
    std::string cause_;  // why the members have changed last
};

}  // namespace DPTK_NAMESPACE::detail

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/comm/detail/elastic_group.ipp"
#endif
