/// A hash of all parameters of a model, to check that all ranks still have the same values.
#pragma once

#include <cstdint>
#include <span>

#include "dptk/comm/process_group.hpp"
#include "dptk/core/config.hpp"
#include "dptk/ddp/parameter_ref.hpp"

namespace DPTK_NAMESPACE::detail {

/// Returns the FNV-1a hash of the bytes of all values, in order and in their memory layout. Values on a
/// device must be complete, except for work on the device's default stream: blocks until that is done.
[[nodiscard]] std::uint64_t parameter_hash(std::span<const ParameterRef> parameters);

/// Returns the hash that all ranks agree on. Throws MismatchError on all ranks, naming the first rank that
/// differs from rank 0. Collective.
[[nodiscard]] std::uint64_t agreed_parameter_hash(ProcessGroup& group,
                                                  std::span<const ParameterRef> parameters);

}  // namespace DPTK_NAMESPACE::detail

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/train/detail/parameter_hash.ipp"
#endif
