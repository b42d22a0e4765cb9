/// The keys of an elastic job in its store, which the members and the MembershipMonitor write.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "dptk/control/elastic/generation.hpp"
#include "dptk/core/config.hpp"
#include "dptk/core/detail/text.hpp"

namespace DPTK_NAMESPACE::detail {

struct MembershipKeys {
    /// How many numbers of members have been given away: add(members, 1) returns a new one.
    static constexpr std::string_view members = "members";
    /// How many members have come to this store; and the number of the member that came as the `i`th.
    static constexpr std::string_view arrivals = "arrivals";
    [[nodiscard]] static std::string arrival(std::int64_t i) { return text("arrival/", i); }
    /// The last Generation that was formed in this store.
    static constexpr std::string_view latest = "latest";
    /// Why the job has ended, although members are left.
    static constexpr std::string_view over = "over";

    /// A number that a member increments once per heartbeat interval.
    [[nodiscard]] static std::string beat(MemberId member) { return text("beat/", member); }

    /// Set when the member's connection to the store is lost.
    [[nodiscard]] static std::string lost(MemberId member) { return text("lost/", member); }

    /// The last Vote of a member. After the member has accepted a generation, with this generation in its
    /// lineage.
    [[nodiscard]] static std::string vote(MemberId member) { return text("vote/", member); }

    /// How a member has ended: "was killed by SIGKILL (9)". Only set once its process has certainly ended, or
    /// has left the job for good.
    [[nodiscard]] static std::string ended(MemberId member) { return text("ended/", member); }
    /// The end of a member that has completed its work: the others need not continue without it.
    static constexpr std::string_view finished = "has finished";

    /// The NextGeneration that follows the generation of this number in this store.
    [[nodiscard]] static std::string next(std::int64_t number) { return text("next/", number); }

    /// The address of the second store, in which the members continue if this one is lost.
    static constexpr std::string_view second = "second";
    /// In the second store: set as long as the launcher that serves it reaches the first one.
    static constexpr std::string_view standby = "standby";
    /// In the second store: the last Generation that was formed in the first one.
    static constexpr std::string_view elsewhere = "elsewhere";
    /// In the second store: set if the first one may have formed a later generation before it was lost.
    static constexpr std::string_view out_of_date = "out_of_date";

    /// How many launchers, the processes that start members, have come to this store. They are numbered by
    /// their arrival, from 1.
    static constexpr std::string_view launchers = "launchers";
    /// The numbers of all members of a launcher, separated by spaces. Each is written before its process
    /// starts.
    [[nodiscard]] static std::string members_of(std::int64_t launcher) {
        return text("launcher/", launcher, "/members");
    }
    /// The address of the second store that this launcher serves, or has offered to serve.
    [[nodiscard]] static std::string second_of(std::int64_t launcher) {
        return text("launcher/", launcher, "/second");
    }
    /// Set once a launcher's process has certainly ended without a report; its members end with it.
    [[nodiscard]] static std::string launcher_ended(std::int64_t launcher) {
        return text("launcher/", launcher, "/ended");
    }

    /// The prefix of the keys of a generation.
    [[nodiscard]] static std::string generation(std::int64_t number) { return text("gen/", number); }

    /// Within a generation: set when all of its members are connected and have the same state.
    static constexpr std::string_view formed = "formed";
    /// Within a generation: set when its members have completed their work.
    static constexpr std::string_view finishing = "finishing";
};

}  // namespace DPTK_NAMESPACE::detail
