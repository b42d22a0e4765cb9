// Checks for agreed errors, which all ranks of a group must throw identically.
#pragma once

#include <dptk/comm/agreement.hpp>

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "support/ranks.hpp"

namespace test {

/// Returns whether fn throws an agreed E on all ranks, with the same text on all of them, which contains
/// `part`, and whether the group is usable afterwards.
template <class E>
[[nodiscard]] bool all_throw(dptk::ProcessGroup& group, std::string_view part,
                             const std::function<void()>& fn) {
    std::string text;
    const bool thrown = throws<E>(text, fn, Agreed::yes) && contains(text, part);
    for (const std::string& other : dptk::detail::all_gather_text(group, text)) {
        if (other != text) return false;
    }
    return thrown && group.all_reduce_value(1) == group.size();
}

}  // namespace test
