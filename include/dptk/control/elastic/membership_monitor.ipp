#pragma once

#include "dptk/control/elastic/membership_monitor.hpp"

#include <algorithm>
#include <memory>
#include <utility>

#include "dptk/control/elastic/membership_keys.hpp"
#include "dptk/control/health/control_plane.hpp"
#include "dptk/control/health/failure_report.hpp"
#include "dptk/control/launch/detail/rendezvous.hpp"
#include "dptk/control/process/deadline.hpp"
#include "dptk/control/store/prefix_store.hpp"
#include "dptk/control/store/tcp_store_server.hpp"
#include "dptk/core/detail/algorithms.hpp"
#include "dptk/core/detail/parse.hpp"
#include "dptk/core/detail/text.hpp"

namespace DPTK_NAMESPACE::detail {

/// Returns the part of the store that belongs to a generation. Must not outlive the store.
[[nodiscard]] DPTK_INLINE PrefixStore part_of(Store& store, const Generation& generation) {
    const std::shared_ptr<Store> not_owned(std::shared_ptr<void>(), &store);
    return {not_owned, MembershipKeys::generation(generation.number)};
}

/// Returns the number in a key; 0 if it has no value.
[[nodiscard]] DPTK_INLINE std::int64_t read_number(Store& store, std::string_view key) {
    std::int64_t number = 0;
    static_cast<void>(parse_number(store.find(key).value_or("0"), number));
    return number;
}

DPTK_INLINE MembershipMonitor::MembershipMonitor(const MembershipRules& rules, clock::time_point now)
    : rules_(rules), waits_since_(now) {}

DPTK_INLINE void MembershipMonitor::look(Store& store, clock::time_point now) {
    if (!over_.empty()) return;
    read(store, now);
    if (!is_broken_) {
        const std::optional<std::string> cause = why_to_break(store, now);
        if (!cause) return;
        break_generation(store, *cause);
        is_broken_ = true;
        waits_since_ = now;
    }
    form_next(store, now);
}

DPTK_INLINE void MembershipMonitor::erase_earlier(TcpStoreServer& server) {
    constexpr std::string_view kept[] = {ControlPlane::abort_key, rendezvous_result_key};
    for (; first_kept_ < generation_.number; ++first_kept_)
        server.erase_all(MembershipKeys::generation(first_kept_) + '/', kept);
}

DPTK_INLINE void MembershipMonitor::read(Store& store, clock::time_point now) {
    const std::int64_t arrivals = read_number(store, MembershipKeys::arrivals);
    while (arrivals_ < arrivals) unread_arrivals_.push_back(++arrivals_);
    detail::erase_if(unread_arrivals_, [&](std::int64_t i) {
        const std::optional<std::string> text = store.find(MembershipKeys::arrival(i));
        MemberId id = 0;
        if (!text || !parse_number(*text, id)) return false;
        members_.try_emplace(id, Member{.heard = now, .voted = now});
        return true;
    });
    if (members_.empty()) return;
    is_only_store_ = !rules_.is_second && !store.find(MembershipKeys::second);
    if (rules_.is_second) {
        is_standby_ = store.find(MembershipKeys::standby).has_value();
        is_out_of_date_ = store.find(MembershipKeys::out_of_date).has_value();
        elsewhere_ =
            Generation::parse(store.find(MembershipKeys::elsewhere).value_or("")).value_or(Generation{});
    }
    read_launchers(store, now);
    for (auto& [id, member] : members_) {
        if (member.end.empty()) read(store, id, member, now);
    }
}

/// Returns the numbers of a launcher's members.
[[nodiscard]] DPTK_INLINE std::vector<MemberId> members_of(Store& store, std::int64_t launcher) {
    const std::string found = store.find(MembershipKeys::members_of(launcher)).value_or("");
    std::vector<MemberId> out;
    for (std::string_view left = found; !left.empty();) {
        if (MemberId id = 0; parse_number(next_word(left), id)) out.push_back(id);
    }
    return out;
}

DPTK_INLINE void MembershipMonitor::read_launchers(Store& store, clock::time_point now) {
    const std::int64_t launchers = read_number(store, MembershipKeys::launchers);
    for (std::int64_t launcher = 1; launcher <= launchers; ++launcher) {
        if (!is_out_of_date_ && !detail::contains(ended_launchers_, launcher) &&
            store.find(MembershipKeys::launcher_ended(launcher))) {
            for (const MemberId id : members_of(store, launcher))
                store.compare_and_set(MembershipKeys::ended(id), "",
                                      "has ended with the launcher that started it");
            ended_launchers_.push_back(launcher);
            const std::optional<std::string> served = store.find(MembershipKeys::second_of(launcher));
            if (served && store.find(MembershipKeys::second) == served)
                store.erase(MembershipKeys::second);  // another launcher may take its place
        }
        if (rules_.is_second) read_ends(store, launcher, now);
    }
}

DPTK_INLINE void MembershipMonitor::read_ends(Store& store, std::int64_t launcher, clock::time_point now) {
    for (const MemberId id : members_of(store, launcher)) {
        if (members_.contains(id)) continue;
        const std::optional<std::string> end = store.find(MembershipKeys::ended(id));
        const std::string vote = store.find(MembershipKeys::vote(id)).value_or("");
        if (!end || (vote.empty() && is_out_of_date_)) continue;
        Member& member = members_[id];
        member.vote = Vote::parse(vote).value_or(Vote{});
        member.heard = member.voted = now;
        member.end = *end;
    }
}

DPTK_INLINE void MembershipMonitor::read(Store& store, MemberId id, Member& member, clock::time_point now) {
    const auto value = [&](const std::string& key) { return store.find(key).value_or(""); };
    std::string end = value(MembershipKeys::ended(id));  // read first: then the vote is its last one
    member.is_lost = store.find(MembershipKeys::lost(id)).has_value();
    std::string beat = value(MembershipKeys::beat(id));
    std::string vote = value(MembershipKeys::vote(id));
    if (beat != member.beat || vote != member.vote_text) member.heard = now;
    if (vote != member.vote_text) {
        member.vote = Vote::parse(vote).value_or(Vote{});
        member.voted = now;
    }
    member.beat = std::move(beat);
    member.vote_text = std::move(vote);
    member.end = std::move(end);
}

DPTK_INLINE bool MembershipMonitor::is_here(const Member& member, clock::time_point now) const {
    return member.end.empty() && !member.is_lost && now - member.heard <= rules_.heartbeat_timeout;
}

DPTK_INLINE bool MembershipMonitor::has_members(clock::time_point now) const {
    return detail::any_of(members_, [&](const auto& one) { return is_here(one.second, now); });
}

DPTK_INLINE bool MembershipMonitor::has_voted(const Member& member) const {
    return member.vote.member > 0 && member.vote.after == generation_.number;
}

DPTK_INLINE std::optional<std::string> MembershipMonitor::why_to_break(Store& store,
                                                                       clock::time_point now) const {
    PrefixStore here = part_of(store, generation_);
    if (const std::optional<std::string> cause = here.find(ControlPlane::abort_key))
        return parse_cause(*cause).text;
    for (const MemberId id : generation_.members) {
        const auto known = members_.find(id);
        if (known == members_.end()) continue;  // a new one, of which this store has only the vote
        const Member& member = known->second;
        const std::string name = text("rank ", generation_.rank_of(id));
        if (!member.end.empty() && member.end != MembershipKeys::finished) return text(name, ' ', member.end);
        if (member.is_lost && member.end.empty()) return text(name, " has lost its connection to the store");
        if (member.end.empty() && !is_here(member, now))
            return text(name, " has sent no heartbeat for ", duration_text(rules_.heartbeat_timeout));
        if (has_voted(member)) return text(name, " has left the group");
    }
    const bool have_ended =
        !generation_.members.empty() &&
        detail::all_of(generation_.members, [&](MemberId id) { return !end_of(id).empty(); });
    if (have_ended) return std::string(all_have_finished);
    if (!here.find(MembershipKeys::formed) || here.find(MembershipKeys::finishing)) return std::nullopt;
    return newcomers(now);
}

DPTK_INLINE std::optional<std::string> MembershipMonitor::newcomers(clock::time_point now) const {
    const std::ptrdiff_t count = detail::count_if(members_, [&](const auto& one) {
        return is_here(one.second, now) && has_voted(one.second) && now - one.second.voted >= admission_delay;
    });
    if (count == 0) return std::nullopt;
    return count == 1 ? std::string("a new rank joins") : text(count, " new ranks join");
}

DPTK_INLINE void MembershipMonitor::break_generation(Store& store, const std::string& cause) const {
    PrefixStore here = part_of(store, generation_);
    here.compare_and_set(ControlPlane::abort_key, "", to_text(FailureCause{cause}));
    end_rendezvous(here, cause);
}

DPTK_INLINE void MembershipMonitor::form_next(Store& store, clock::time_point now) {
    const std::vector<Vote> voters = votes(now);
    if (voters.empty()) {
        waits_since_ = now;
        return;
    }
    const EndedMembers gone = ended();
    const bool begins = !rules_.is_second && known_lineage().all().empty();
    const std::string problem =
        begins ? why_not_begin(voters, now) : why_not_continue(store, voters, gone, now);
    const std::string key = MembershipKeys::next(generation_.number);
    if (problem.empty()) {
        const NextGeneration next = next_generation(voters, gone);
        // A member that has read the generation must not vote for it again.
        store.set(MembershipKeys::latest, next.generation.to_text());
        store.set(key, next.to_text());
        generation_ = next.generation;
        is_broken_ = false;
        return;
    }
    const Lineage lineage = lineage_of(voters, gone);
    if (!begins && !has_state(lineage)) {
        over_ = has_finished(lineage) ? all_have_finished : "all ranks that had its state have ended";
    } else if (is_standby_) {
        waits_since_ = now;
        return;
    } else if (now - waits_since_ >= waiting_limit()) {
        over_ = text(problem, ", for ", duration_text(waiting_limit()));
    } else {
        return;
    }
    store.set(MembershipKeys::over, over_);
    store.set(key, "");  // wakes the members that wait for it
}

DPTK_INLINE std::string MembershipMonitor::end_of(MemberId id) const {
    const auto known = members_.find(id);
    return known == members_.end() ? std::string() : known->second.end;
}

DPTK_INLINE bool MembershipMonitor::has_state(const Lineage& lineage) const {
    return detail::none_of(lineage.all(), [&](const Generation& one) {
        return detail::all_of(one.members, [&](MemberId id) { return !end_of(id).empty(); });
    });
}

DPTK_INLINE bool MembershipMonitor::has_finished(const Lineage& lineage) const {
    return detail::any_of(lineage.all(), [&](const Generation& one) {
        return detail::any_of(one.members,
                              [&](MemberId id) { return end_of(id) == MembershipKeys::finished; });
    });
}

DPTK_INLINE std::string MembershipMonitor::why_not_begin(std::span<const Vote> votes,
                                                         clock::time_point now) const {
    if (votes.size() < rules_.first_size)
        return text(votes.size(), " of ", rules_.first_size, " ranks have come");
    const bool has_late = detail::any_of(
        members_, [&](const auto& one) { return is_here(one.second, now) && !has_voted(one.second); });
    return has_late ? "a rank has come, but is not ready" : "";
}

DPTK_INLINE int MembershipMonitor::count_launchers(Store& store, std::span<const Vote> votes) {
    const std::int64_t launchers = read_number(store, MembershipKeys::launchers);
    int count = 0;
    for (std::int64_t launcher = 1; launcher <= launchers; ++launcher) {
        const std::vector<MemberId> members = members_of(store, launcher);
        if (detail::any_of(votes, [&](const Vote& vote) { return detail::contains(members, vote.member); }))
            ++count;
    }
    return count;
}

DPTK_INLINE std::string MembershipMonitor::why_not_continue(Store& store, std::span<const Vote> votes,
                                                            const EndedMembers& ended,
                                                            clock::time_point now) const {
    for (const Generation& earlier : lineage_of(votes, ended).all()) {
        const std::vector<MemberId> missing = awaited(earlier, now);
        if (missing.empty()) continue;
        return text("rank ", earlier.rank_of(missing.front()), " has not left the group");
    }
    if (is_only_store_) {
        const auto takes_part = [&](const Generation& one) {
            return detail::any_of(votes, [&](const Vote& vote) { return one.contains(vote.member); });
        };
        if (!detail::all_of(known_lineage().all(), takes_part))
            return "no rank is left that has the last state";
    } else if (!may_continue(votes, ended))
        return text("the ranks that are left (", votes.size(),
                    ") are not the majority of those that may continue elsewhere");
    if (rules_.least_launchers > 1) {
        const int hosts = count_launchers(store, votes);
        if (hosts < rules_.least_launchers)
            return text("ranks are left on ", hosts, hosts == 1 ? " host" : " hosts",
                        ", fewer than the least ", rules_.least_launchers);
    }
    return {};
}

DPTK_INLINE std::vector<MemberId> MembershipMonitor::awaited(const Generation& earlier,
                                                             clock::time_point now) const {
    std::vector<MemberId> out;
    for (const MemberId id : earlier.members) {
        const auto known = members_.find(id);
        // A member that was never here may still come, if it has lost the other store later.
        const bool may_vote = known == members_.end()
                                  ? now - waits_since_ <= rules_.heartbeat_timeout
                                  : is_here(known->second, now) && !has_voted(known->second);
        if (may_vote) out.push_back(id);
    }
    return out;
}

DPTK_INLINE Lineage MembershipMonitor::known_lineage() const {
    Lineage out;
    for (const auto& [id, member] : members_) out.merge(member.vote.lineage);
    return out;
}

DPTK_INLINE std::chrono::milliseconds MembershipMonitor::waiting_limit() const {
    const bool has_taken_over = !rules_.is_second || generation_.number > 0;
    return has_taken_over ? rules_.timeout : std::min(rules_.timeout, 3 * rules_.heartbeat_timeout);
}

DPTK_INLINE std::vector<Vote> MembershipMonitor::votes(clock::time_point now) const {
    std::vector<Vote> out;
    for (const auto& [id, member] : members_) {
        if (is_here(member, now) && has_voted(member)) out.push_back(member.vote);
    }
    return out;
}

DPTK_INLINE EndedMembers MembershipMonitor::ended() const {
    EndedMembers out;
    Lineage elsewhere;
    elsewhere.accepted.push_back(elsewhere_);
    for (const auto& [id, member] : members_) {
        if (member.end.empty()) continue;
        Lineage& known = out[id] = member.vote.lineage;
        // Members of the first store may have continued there without those that have come here.
        if (elsewhere_.number > 0) known.merge(elsewhere);
    }
    return out;
}

}  // namespace DPTK_NAMESPACE::detail
