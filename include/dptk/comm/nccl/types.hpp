/// NCCL's header, and what its types and operations are called there.
#pragma once

#if !__has_include(<nccl.h>)
#error "dptk/comm/nccl.hpp needs NCCL: link dptk::nccl, or add the folder of nccl.h"
#endif
#include <nccl.h>

#include <cstddef>
#include <optional>

#include "dptk/comm/reduce_op.hpp"
#include "dptk/core/buffer.hpp"
#include "dptk/core/config.hpp"
#include "dptk/core/dtype.hpp"

#if NCCL_VERSION_CODE < NCCL_VERSION(2, 14, 0)
#error "dptk/comm/nccl.hpp needs NCCL 2.14 or newer"
#endif

namespace DPTK_NAMESPACE::detail {

/// Memory that NCCL allocates and registers: 2.19.
inline constexpr bool nccl_allocates = NCCL_VERSION_CODE >= NCCL_VERSION(2, 19, 0);

/// How many elements of which of NCCL's types a buffer has.
struct NcclElements {
    std::size_t count = 0;
    ncclDataType_t type = ncclUint8;
};

/// A buffer's elements where NCCL has to know their numbers; nothing where it has no such type. Complex
/// numbers are two real ones.
[[nodiscard]] std::optional<NcclElements> nccl_numbers(const Buffer& buffer) noexcept;

/// NCCL's operation on such elements; nothing where it has none. A weighted sum is made for each call.
[[nodiscard]] std::optional<ncclRedOp_t> nccl_op(DType dtype, const Reduction& reduction) noexcept;

/// Whether NCCL itself carries the reduction out.
[[nodiscard]] bool nccl_reduces(const Buffer& buffer, const Reduction& reduction) noexcept;

}  // namespace DPTK_NAMESPACE::detail

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/comm/nccl/types.ipp"
#endif
