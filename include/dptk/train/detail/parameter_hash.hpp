/// One number for all parameters of a model, to see that the ranks still have the same.
#pragma once

#include <cstdint>
#include <span>

#include "dptk/comm/process_group.hpp"
#include "dptk/core/config.hpp"
#include "dptk/ddp/parameter_ref.hpp"

namespace DPTK_NAMESPACE::detail {

/// FNV-1a over the bytes of all values, in order and in the layout that they have in memory. Values on a
/// device must be complete, but for what its default stream still does: blocks for that.
[[nodiscard]] std::uint64_t parameter_hash(std::span<const ParameterRef> parameters);

/// The hash that all ranks have. Throws MismatchError on all ranks, naming the first that differs from rank
/// 0. Collective.
[[nodiscard]] std::uint64_t agreed_parameter_hash(ProcessGroup& group,
                                                  std::span<const ParameterRef> parameters);

}  // namespace DPTK_NAMESPACE::detail

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/train/detail/parameter_hash.ipp"
#endif
