/// A hash of all parameters of a model, to check that all ranks still have the same values.
#pragma once

#include <cstdint>
#include <span>

#include "dptk/comm/process_group.hpp"
#include "dptk/core/config.hpp"
#include "dptk/core/parameter_ref.hpp"

namespace DPTK_NAMESPACE::detail {

/// Returns the FNV-1a hash of the bytes of all values, in order and in their memory layout. For values on a
/// device, blocks until the work on the device's default stream is done; work on other streams must be done
/// before the call.
[[nodiscard]] std::uint64_t parameter_hash(std::span<const ParameterRef> parameters);

/// Returns the parameter_hash() of this rank, which equals that of all ranks. If the hashes differ, throws a
/// MismatchError on all ranks that names the first rank whose hash differs from rank 0's. Collective.
[[nodiscard]] std::uint64_t agreed_parameter_hash(ProcessGroup& group,
                                                  std::span<const ParameterRef> parameters);

}  // namespace DPTK_NAMESPACE::detail

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/train/detail/parameter_hash.ipp"
#endif
