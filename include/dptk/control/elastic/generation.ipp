#pragma once

#include "dptk/control/elastic/generation.hpp"

#include "dptk/core/detail/algorithms.hpp"
#include "dptk/core/detail/parse.hpp"
#include "dptk/core/detail/text.hpp"

namespace DPTK_NAMESPACE::detail {

DPTK_INLINE bool Generation::contains(MemberId member) const {
    return detail::contains(members, member);
}

DPTK_INLINE int Generation::rank_of(MemberId member) const {
    return static_cast<int>(detail::find(members, member) - members.begin());
}

DPTK_INLINE std::string Generation::to_text() const {
    std::string out = text(number);
    for (const MemberId member : members) out += text(' ', member);
    return out;
}

DPTK_INLINE std::optional<Generation> Generation::parse(std::string_view line) {
    Generation out;
    if (!parse_number(next_word(line), out.number)) return std::nullopt;
    while (!line.empty()) {
        if (!parse_number(next_word(line), out.members.emplace_back())) return std::nullopt;
    }
    return out;
}

DPTK_INLINE std::int64_t number_of_generation(const std::optional<std::string>& text) {
    const std::optional<Generation> generation = Generation::parse(text.value_or(""));
    return generation ? generation->number : 0;
}

}  // namespace DPTK_NAMESPACE::detail
