/// NCCL's header, and what its types and operations are called there.
#pragma once

#if !__has_include(<nccl.h>)
#error "dptk/comm/nccl.hpp needs NCCL: link dptk::nccl, or add the folder of nccl.h"
#endif
#include <nccl.h>

#if NCCL_VERSION_CODE < NCCL_VERSION(2, 14, 0)
#error "dptk/comm/nccl.hpp needs NCCL 2.14 or newer"
#endif

#include <cstddef>
#include <optional>

#include "dptk/comm/reduce_op.hpp"
#include "dptk/core/buffer.hpp"
#include "dptk/core/dtype.hpp"

namespace dptk::detail {

/// Memory that NCCL allocates and registers: 2.19.
inline constexpr bool nccl_allocates = NCCL_VERSION_CODE >= NCCL_VERSION(2, 19, 0);

/// How many elements of which of NCCL's types a buffer has.
struct NcclElements {
    std::size_t count = 0;
    ncclDataType_t type = ncclUint8;
};

/// A buffer's elements where NCCL has to know their numbers; nothing where it has no such type. Complex
/// numbers are two real ones.
[[nodiscard]] inline std::optional<NcclElements> nccl_numbers(const Buffer& buffer) noexcept {
    const auto are = [&](ncclDataType_t type, std::size_t each = 1) {
        return NcclElements{buffer.count * each, type};
    };
    switch (buffer.dtype) {
        case DType::boolean:
        case DType::u8: return are(ncclUint8);
        case DType::i8: return are(ncclInt8);
        case DType::i32: return are(ncclInt32);
        case DType::u32: return are(ncclUint32);
        case DType::i64: return are(ncclInt64);
        case DType::u64: return are(ncclUint64);
        case DType::f16: return are(ncclFloat16);
        case DType::bf16: return are(ncclBfloat16);
        case DType::f32: return are(ncclFloat32);
        case DType::f64: return are(ncclFloat64);
        case DType::c64: return are(ncclFloat32, 2);
        case DType::c128: return are(ncclFloat64, 2);
        case DType::i16:
        case DType::u16:
        case DType::opaque: break;
    }
    return std::nullopt;
}

/// The elements where NCCL only moves them.
[[nodiscard]] inline NcclElements nccl_bytes(const Buffer& buffer) noexcept {
    return {buffer.bytes(), ncclUint8};
}

/// NCCL's operation on such elements; nothing where it has none. A weighted sum is made for each call.
[[nodiscard]] inline std::optional<ncclRedOp_t> nccl_op(DType dtype, const Reduction& reduction) noexcept {
    const bool sixteen_bit = dtype == DType::f16 || dtype == DType::bf16;
    if (reduction.user != nullptr) return std::nullopt;
    // NCCL would round the weight to the elements' type: 8 significant bits in bf16.
    if (reduction.weight && sixteen_bit) return std::nullopt;
    switch (reduction.op) {
        case ReduceOp::sum: return ncclSum;
        case ReduceOp::avg: return ncclAvg;
        case ReduceOp::min: return ncclMin;
        case ReduceOp::max: return ncclMax;
        case ReduceOp::product:
            if (is_complex(dtype)) return std::nullopt;
            return ncclProd;
        case ReduceOp::band:
            if (dtype == DType::boolean) return ncclMin;
            return std::nullopt;
        case ReduceOp::bor:
            if (dtype == DType::boolean) return ncclMax;
            return std::nullopt;
        case ReduceOp::bxor: break;
    }
    return std::nullopt;
}

/// Whether NCCL itself carries the reduction out.
[[nodiscard]] inline bool nccl_reduces(const Buffer& buffer, const Reduction& reduction) noexcept {
    return nccl_numbers(buffer).has_value() && nccl_op(buffer.dtype, reduction).has_value();
}

}  // namespace dptk::detail
