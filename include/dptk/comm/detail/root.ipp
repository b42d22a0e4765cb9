#pragma once

#include "dptk/comm/detail/root.hpp"

#include "dptk/core/detail/text.hpp"

namespace DPTK_NAMESPACE::detail {

DPTK_INLINE std::string root_problem(int root, int size) {
    if (root >= 0 && root < size) return {};
    return text("root ", root, " is outside [0, ", size - 1, "]");
}

}  // namespace DPTK_NAMESPACE::detail
