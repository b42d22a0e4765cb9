#pragma once

#include "dptk/control/elastic/quorum.hpp"

#include <algorithm>

#include "dptk/core/detail/algorithms.hpp"
#include "dptk/core/detail/parse.hpp"
#include "dptk/core/detail/text.hpp"

namespace DPTK_NAMESPACE::detail {

DPTK_INLINE void Lineage::merge(const Lineage& other) {
    if (other.formed.number > formed.number) formed = other.formed;
    for (const Generation& one : other.accepted) {
        if (!detail::contains(accepted, one)) accepted.push_back(one);
    }
    detail::erase_if(accepted, [&](const Generation& one) { return one.number <= formed.number; });
}

DPTK_INLINE std::vector<Generation> Lineage::all() const {
    std::vector<Generation> out;
    if (formed.number > 0) out.push_back(formed);
    out.insert(out.end(), accepted.begin(), accepted.end());
    return out;
}

DPTK_INLINE std::string Lineage::to_text() const {
    std::string out = formed.to_text();
    for (const Generation& one : accepted) out += text('\n', one.to_text());
    return out;
}

DPTK_INLINE std::optional<Lineage> Lineage::parse(std::string_view lines) {
    const std::optional<Generation> formed = Generation::parse(next_line(lines));
    if (!formed) return std::nullopt;
    Lineage out{*formed};
    while (!lines.empty()) {
        const std::optional<Generation> accepted = Generation::parse(next_line(lines));
        if (!accepted) return std::nullopt;
        out.accepted.push_back(*accepted);
    }
    return out;
}

DPTK_INLINE std::string NextGeneration::to_text() const {
    return text(generation.to_text(), '\n', before.to_text());
}

DPTK_INLINE std::optional<NextGeneration> NextGeneration::parse(std::string_view lines) {
    const std::optional<Generation> generation = Generation::parse(next_line(lines));
    const std::optional<Lineage> before = Lineage::parse(lines);
    if (!generation || !before) return std::nullopt;
    return NextGeneration{*generation, *before};
}

DPTK_INLINE void Vote::accept(const NextGeneration& next) {
    seen = std::max(seen, next.generation.number);
    lineage.merge(next.before);
    lineage.accepted.push_back(next.generation);
}

DPTK_INLINE std::string Vote::to_text() const {
    return text(member, ' ', after, ' ', seen, '\n', lineage.to_text());
}

DPTK_INLINE std::optional<Vote> Vote::parse(std::string_view lines) {
    Vote vote;
    std::string_view numbers = next_line(lines);
    for (std::int64_t* const number : {&vote.member, &vote.after, &vote.seen}) {
        if (!parse_number(next_word(numbers), *number)) return std::nullopt;
    }
    const std::optional<Lineage> lineage = Lineage::parse(lines);
    if (!lineage) return std::nullopt;
    vote.lineage = *lineage;
    return vote;
}

DPTK_INLINE Lineage lineage_of(std::span<const Vote> votes, const EndedMembers& ended) {
    Lineage out;
    for (const Vote& vote : votes) out.merge(vote.lineage);
    for (const auto& [member, lineage] : ended) out.merge(lineage);
    return out;
}

DPTK_INLINE bool have_majority(std::span<const Vote> votes, const Generation& of, const EndedMembers& ended) {
    std::vector<MemberId> electorate = of.members;
    detail::erase_if(electorate, [&](MemberId member) { return ended.contains(member); });
    const auto votes_here = [&](MemberId member) {
        return detail::any_of(votes, [&](const Vote& vote) { return vote.member == member; });
    };
    const std::ptrdiff_t twice = 2 * detail::count_if(electorate, votes_here);
    const auto all = static_cast<std::ptrdiff_t>(electorate.size());
    return twice > all || (all > 0 && twice == all && votes_here(electorate.front()));
}

DPTK_INLINE bool may_continue(std::span<const Vote> votes, const EndedMembers& ended) {
    const std::vector<Generation> all = lineage_of(votes, ended).all();
    return !all.empty() &&
           detail::all_of(all, [&](const Generation& one) { return have_majority(votes, one, ended); });
}

DPTK_INLINE NextGeneration next_generation(std::span<const Vote> votes, const EndedMembers& ended) {
    NextGeneration next{.before = lineage_of(votes, ended)};
    for (const Vote& vote : votes) {
        next.generation.number = std::max({next.generation.number, vote.seen, vote.after});
        next.generation.members.push_back(vote.member);
    }
    ++next.generation.number;
    return next;
}

}  // namespace DPTK_NAMESPACE::detail
