/// Combines several Work handles into one.
#pragma once

#include <vector>

#include "dptk/comm/work.hpp"
#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE::detail {

/// Returns a Work that is done when all of `parts` are. Its error is the error of the first failed part.
[[nodiscard]] Work join_works(const std::vector<Work>& parts);

}  // namespace DPTK_NAMESPACE::detail

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/comm/detail/joint_work.ipp"
#endif
