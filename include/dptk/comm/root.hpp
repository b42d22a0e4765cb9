/// What is wrong with the root of a call, for checks that all ranks agree about.
#pragma once

#include <string>

#include "dptk/core/text.hpp"

namespace dptk::detail {

/// Empty where `root` is a rank of a group of `size`.
[[nodiscard]] inline std::string root_problem(int root, int size) {
    if (root >= 0 && root < size) return {};
    return text("root ", root, " is outside [0, ", size - 1, "]");
}

}  // namespace dptk::detail
