// Errors that all ranks of a group must throw alike.
#pragma once

#include <dptk/comm/agreement.hpp>

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "support/ranks.hpp"

namespace test {

/// Whether fn throws an agreed E, of one text on all ranks, that has `part` in it, after which the group
/// works.
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
