/// What is wrong with the root of a call, for checks that all ranks agree about.
#pragma once

#include <string>

#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE::detail {

/// Empty where `root` is a rank of a group of `size`.
[[nodiscard]] std::string root_problem(int root, int size);

}  // namespace DPTK_NAMESPACE::detail

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/comm/detail/root.ipp"
#endif
