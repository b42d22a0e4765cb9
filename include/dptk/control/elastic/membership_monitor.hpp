/// Membership monitor: forms the generations of an elastic job in one store. It ends a generation when one of
/// its members ends, leaves or is lost, or when a new member waits, and then forms the next one of the
/// members that are left and the new ones. Runs where the store is served.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "dptk/control/elastic/generation.hpp"
#include "dptk/control/elastic/quorum.hpp"
#include "dptk/control/process/awake_clock.hpp"
#include "dptk/control/store/store.hpp"
#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE {

class TcpStoreServer;

}  // namespace DPTK_NAMESPACE

namespace DPTK_NAMESPACE::detail {

struct MembershipRules {
    /// The number of members for which the first generation waits.
    std::size_t first_size = 1;
    /// The least number of launchers that have started the members of a generation: fewer wait for others.
    int least_launchers = 0;
    /// How long a member may send no heartbeat before the others continue without it.
    std::chrono::milliseconds heartbeat_timeout = default_heartbeat_timeout;
    /// How long the job waits for missing members before it ends.
    std::chrono::milliseconds timeout = default_timeout;
    /// Whether this is the second store of a job, to which members come when they have lost the first one.
    bool is_second = false;
};

/// Forms the generations of one job. Reads and writes only the store; the caller passes the time.
///
/// If a job has a second store, two groups of members could continue, one with each store: then each needs a
/// majority (see quorum.hpp). Otherwise it is enough that a member is left of each generation that may have
/// taken the last step.
class MembershipMonitor {
  public:
    using clock = AwakeClock;

    MembershipMonitor(const MembershipRules& rules, clock::time_point now);

    /// Reads what the members have written, and ends or forms a generation if that is due. Call it several
    /// times per second, and after each end of a member.
    void look(Store& store, clock::time_point now);

    /// Erases the keys of earlier generations, except those that their members still read when they were
    /// stopped meanwhile. Call it after look(), with the server of the store.
    void erase_earlier(TcpStoreServer& server);

    /// Whether members have come that have not ended, and send heartbeats.
    [[nodiscard]] bool has_members(clock::time_point now) const;

    /// The generation that was formed last; of number 0 before the first one.
    [[nodiscard]] const Generation& generation() const noexcept { return generation_; }

    /// Whether the generation has ended, and its members are to form the next one.
    [[nodiscard]] bool is_broken() const noexcept { return is_broken_; }

    /// Why the job has ended for members that are left when all others have finished.
    static constexpr std::string_view all_have_finished = "all ranks that had its state have finished";

    /// Why the job has ended; empty while it continues.
    [[nodiscard]] const std::string& over() const noexcept { return over_; }

  private:
    struct Member {
        clock::time_point heard;  ///< the time of its last heartbeat
        clock::time_point voted;  ///< the time of its last vote
        std::string beat = {};
        std::string vote_text = {};
        Vote vote = {};
        std::string end = {};  ///< how it has ended; empty while it runs
        bool is_lost = false;  ///< whether its connection to the store is lost
    };

    /// New members are let in together if they come at about the same time.
    static constexpr std::chrono::milliseconds admission_delay{200};

    void read(Store& store, clock::time_point now);
    static void read(Store& store, MemberId id, Member& member, clock::time_point now);

    /// Reads which launchers have ended, and ends their members.
    void read_launchers(Store& store, clock::time_point now);
    /// In the second store: reads how members have ended that have never come here. They may have continued
    /// with the first store before. If nothing says what they knew then, they count as if they still ran.
    void read_ends(Store& store, std::int64_t launcher, clock::time_point now);

    [[nodiscard]] bool is_here(const Member& member, clock::time_point now) const;
    [[nodiscard]] bool has_voted(const Member& member) const;

    /// Returns why the generation must end, or nullopt if it can continue.
    [[nodiscard]] std::optional<std::string> why_to_break(Store& store, clock::time_point now) const;
    [[nodiscard]] std::optional<std::string> newcomers(clock::time_point now) const;
    void break_generation(Store& store, const std::string& cause) const;

    void form_next(Store& store, clock::time_point now);

    /// Returns why the first generation cannot be formed yet; empty if it can.
    [[nodiscard]] std::string why_not_begin(std::span<const Vote> votes, clock::time_point now) const;

    /// Returns how many launchers have started the voters.
    [[nodiscard]] static int count_launchers(Store& store, std::span<const Vote> votes);

    /// Returns why the voters cannot form a generation that continues those of the lineage yet.
    [[nodiscard]] std::string why_not_continue(Store& store, std::span<const Vote> votes,
                                               const EndedMembers& ended, clock::time_point now) const;

    /// Returns how a member has ended; an empty text if it runs, or has not come to this store.
    [[nodiscard]] std::string end_of(MemberId id) const;

    /// Returns whether a member may still run of each generation, of which one had the last state.
    [[nodiscard]] bool has_state(const Lineage& lineage) const;

    /// Returns whether a member of one of these generations has completed its work.
    [[nodiscard]] bool has_finished(const Lineage& lineage) const;

    /// Returns the members that may still vote for a generation that continues `earlier`.
    [[nodiscard]] std::vector<MemberId> awaited(const Generation& earlier, clock::time_point now) const;

    /// Returns what all members know, also those that are lost.
    [[nodiscard]] Lineage known_lineage() const;

    /// How long members wait here for others. A second store that has not formed a generation yet ends the
    /// job early: all ranks that can reach it come within that time.
    [[nodiscard]] std::chrono::milliseconds waiting_limit() const;

    [[nodiscard]] std::vector<Vote> votes(clock::time_point now) const;
    [[nodiscard]] EndedMembers ended() const;

    MembershipRules rules_;
    std::map<MemberId, Member> members_;  // those that have come to this store
    std::int64_t arrivals_ = 0;
    /// Those that have not written their number yet; a process that was killed then never does.
    std::vector<std::int64_t> unread_arrivals_;
    Generation generation_;
    std::vector<std::int64_t> ended_launchers_;
    bool is_only_store_ = true;
    bool is_standby_ = false;        // a second store whose launcher still reaches the first one
    bool is_out_of_date_ = false;    // whether elsewhere_ may not be the last one
    Generation elsewhere_;           // in the second store: the last generation of the first one
    std::int64_t first_kept_ = 1;    // the first generation whose keys are complete
    bool is_broken_ = true;          // there is no first generation yet
    clock::time_point waits_since_;  // since when members wait for the next generation
    std::string over_;
};

}  // namespace DPTK_NAMESPACE::detail

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/control/elastic/membership_monitor.ipp"
#endif
