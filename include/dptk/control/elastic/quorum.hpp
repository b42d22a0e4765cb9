/// Quorum: decides which members of an elastic job may form its next generation, so that two groups of
/// members that cannot reach each other never both continue.
///
/// The rule is that of joint consensus (D. Ongaro, J. Ousterhout: In Search of an Understandable Consensus
/// Algorithm, section 6), with processes that have certainly ended left out of the count. A generation takes
/// steps only after all of its members have connected to each other. A member that votes has left its
/// earlier generations for good, so none of these takes another step. Hence it suffices that the voters
/// include a majority of each generation that may have taken a step:
///
/// - the last generation that is known to be complete, and
/// - each later one whose members a voter has tried to connect with, since others may have completed it.
///
/// Half of a generation counts as a majority if it includes the generation's first member.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "dptk/control/elastic/generation.hpp"
#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE::detail {

/// The generations that may have taken the last step, as far as a member knows.
struct Lineage {
    /// The last generation that is known to be complete: all of its members have been connected, and have got
    /// the state of its older members.
    Generation formed = {};
    /// The later generations whose members have tried to connect.
    std::vector<Generation> accepted = {};

    /// Adds what another member knows.
    void merge(const Lineage& other);

    /// Returns all these generations: those of which voters must include a majority.
    [[nodiscard]] std::vector<Generation> all() const;

    /// Returns the generations as lines.
    [[nodiscard]] std::string to_text() const;

    /// Returns the lineage that to_text() has serialized, or nullopt for another text.
    [[nodiscard]] static std::optional<Lineage> parse(std::string_view lines);

    friend bool operator==(const Lineage&, const Lineage&) = default;
};

/// What the voters in a store read about the next generation.
struct NextGeneration {
    Generation generation = {};
    Lineage before = {};  ///< What its voters knew.

    /// Returns the generations as lines.
    [[nodiscard]] std::string to_text() const;

    /// Returns what to_text() has serialized, or nullopt for another text.
    [[nodiscard]] static std::optional<NextGeneration> parse(std::string_view lines);

    friend bool operator==(const NextGeneration&, const NextGeneration&) = default;
};

/// The request of a member to be in the next generation.
struct Vote {
    MemberId member = 0;
    /// The number of the last generation that the voter has read from the store in which it votes.
    std::int64_t after = 0;
    /// The largest number of a generation that the voter has read from any store.
    std::int64_t seen = 0;
    Lineage lineage = {};

    /// Notes that the voter tries to connect with the members of `next`. A new member learns the lineage
    /// here. Otherwise new members that have accepted a generation would count as its majority, although its
    /// older members may continue elsewhere.
    void accept(const NextGeneration& next);

    /// Notes that this generation is complete.
    void note_formed(const Generation& generation) { lineage = {generation, {}}; }

    /// Returns the vote as lines.
    [[nodiscard]] std::string to_text() const;

    /// Returns the vote that to_text() has serialized, or nullopt for another text.
    [[nodiscard]] static std::optional<Vote> parse(std::string_view lines);

    friend bool operator==(const Vote&, const Vote&) = default;
};

/// The members whose processes have certainly ended, each with what it knew at its end. A process that only
/// cannot be reached may continue. A process that has ended may have continued before, without the voters:
/// then its lineage includes a generation of which they are no majority.
using EndedMembers = std::map<MemberId, Lineage>;

/// Returns what the voters and the members that have ended together know.
[[nodiscard]] Lineage lineage_of(std::span<const Vote> votes, const EndedMembers& ended);

/// Returns whether the voters include a majority of the generation's members that have not ended.
[[nodiscard]] bool have_majority(std::span<const Vote> votes, const Generation& of,
                                 const EndedMembers& ended);

/// Returns whether the voters may form the next generation: whether they include a majority of each
/// generation of the lineage, which must not be empty.
[[nodiscard]] bool may_continue(std::span<const Vote> votes, const EndedMembers& ended);

/// Returns the generation of these voters, which must be in ascending order.
[[nodiscard]] NextGeneration next_generation(std::span<const Vote> votes, const EndedMembers& ended);

}  // namespace DPTK_NAMESPACE::detail

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/control/elastic/quorum.ipp"
#endif
