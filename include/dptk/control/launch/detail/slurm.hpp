/// What SLURM tells a task about where its job meets. Reads variables only.
///
/// Source of the format: the man page of scontrol, hostlist expressions.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE::detail {

/// The first host of a list such as "n[1-3,7],m04": "n1". Empty for a list that is none.
[[nodiscard]] std::string first_slurm_host(std::string_view list);

/// 15000 plus the last four digits of the job's number, so that jobs on one host rarely meet.
[[nodiscard]] std::uint16_t slurm_port(std::string_view job_id);

}  // namespace DPTK_NAMESPACE::detail

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/control/launch/detail/slurm.ipp"
#endif
