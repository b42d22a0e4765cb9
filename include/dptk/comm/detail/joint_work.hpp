/// Combines several Work handles into one.
#pragma once

#include <memory>
#include <vector>

#include "dptk/comm/work.hpp"
#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE::detail {

/// Returns a Work of a job that is done when all of `parts` are. Its error is the error of the first failed
/// part.
[[nodiscard]] Work join_works(std::vector<Work> parts, std::shared_ptr<ControlPlane> control);

/// Overload that takes and returns states.
[[nodiscard]] std::shared_ptr<WorkState> join_works(std::vector<std::shared_ptr<WorkState>> parts);

}  // namespace DPTK_NAMESPACE::detail

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/comm/detail/joint_work.ipp"
#endif
