/// Host and port of the rendezvous in a SLURM job, from SLURM's hostlist and job id.
///
/// Source of the hostlist format: the man page of scontrol, hostlist expressions.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE::detail {

/// Returns the first host of a hostlist: "n1" for "n[1-3,7],m04". Empty if the hostlist is invalid.
[[nodiscard]] std::string first_slurm_host(std::string_view list);

/// Returns 15000 plus the last four digits of the job id, so that jobs on one host rarely use the same port.
/// Throws ArgumentError if one of the last four characters is not a digit.
[[nodiscard]] std::uint16_t slurm_port(std::string_view job_id);

}  // namespace DPTK_NAMESPACE::detail

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/control/launch/detail/slurm_hostlist.ipp"
#endif
