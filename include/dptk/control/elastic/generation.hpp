/// Generation: the members of an elastic job between two changes of its members.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE::detail {

/// The number of a process in an elastic job. A process that replaces another one has a new number, so that
/// numbers are never reused. The first is 1.
using MemberId = std::int64_t;

struct Generation {
    std::int64_t number = 0;             ///< Grows with each change; 0: no generation.
    std::vector<MemberId> members = {};  ///< By rank, in ascending order.

    [[nodiscard]] bool contains(MemberId member) const;

    /// Returns the rank of a member of this generation.
    [[nodiscard]] int rank_of(MemberId member) const;

    /// Returns the number and the members in one line.
    [[nodiscard]] std::string to_text() const;

    /// Returns the generation that to_text() has serialized, or nullopt for another text.
    [[nodiscard]] static std::optional<Generation> parse(std::string_view line);

    friend bool operator==(const Generation&, const Generation&) = default;
};

/// Returns the number of a generation that a store contains as text; 0 if it contains none.
[[nodiscard]] std::int64_t number_of_generation(const std::optional<std::string>& text);

}  // namespace DPTK_NAMESPACE::detail

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/control/elastic/generation.ipp"
#endif
