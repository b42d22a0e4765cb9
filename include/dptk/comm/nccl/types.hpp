/// Includes NCCL's header, and maps dtypes and reduction operations to NCCL's.
#pragma once

#if !__has_include(<nccl.h>)
#error "dptk/comm/nccl.hpp needs NCCL: link dptk::nccl, or add the folder of nccl.h to the include path"
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

/// Whether NCCL has ncclMemAlloc and ncclCommRegister (since 2.19).
inline constexpr bool nccl_allocates = NCCL_VERSION_CODE >= NCCL_VERSION(2, 19, 0);

/// A buffer's elements as NCCL counts them.
struct NcclElements {
    std::size_t count = 0;
    ncclDataType_t type = ncclUint8;
};

/// Returns a buffer's elements for a reduction; empty if NCCL does not have their type. A complex number
/// counts as two real ones.
[[nodiscard]] std::optional<NcclElements> nccl_numbers(const Buffer& buffer) noexcept;

/// Returns NCCL's operation for a reduction of elements of `dtype`; empty if NCCL has no such operation. The
/// result ignores the weight of a weighted sum, for which the caller creates an operation for each call.
[[nodiscard]] std::optional<ncclRedOp_t> nccl_op(DType dtype, const Reduction& reduction) noexcept;

/// Whether NCCL supports the reduction.
[[nodiscard]] bool nccl_reduces(const Buffer& buffer, const Reduction& reduction) noexcept;

}  // namespace DPTK_NAMESPACE::detail

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/comm/nccl/types.ipp"
#endif
