/// Validation of a collective's root rank, for checks whose result the ranks exchange.
#pragma once

#include <string>

#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE::detail {

/// Returns why `root` is invalid in a group of `size` ranks; empty if it is valid.
[[nodiscard]] std::string root_problem(int root, int size);

}  // namespace DPTK_NAMESPACE::detail

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/comm/detail/root.ipp"
#endif
