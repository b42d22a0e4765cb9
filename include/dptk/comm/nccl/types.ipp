#pragma once

#include "dptk/comm/nccl/types.hpp"

namespace DPTK_NAMESPACE::detail {

DPTK_INLINE std::optional<NcclElements> nccl_numbers(const Buffer& buffer) noexcept {
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

/// Returns a buffer's elements as bytes, for calls that do not reduce them.
[[nodiscard]] DPTK_INLINE NcclElements nccl_bytes(const Buffer& buffer) noexcept {
    return {buffer.bytes(), ncclUint8};
}

DPTK_INLINE std::optional<ncclRedOp_t> nccl_op(DType dtype, const Reduction& reduction) noexcept {
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

DPTK_INLINE bool nccl_reduces(const Buffer& buffer, const Reduction& reduction) noexcept {
    return nccl_numbers(buffer).has_value() && nccl_op(buffer.dtype, reduction).has_value();
}

}  // namespace DPTK_NAMESPACE::detail
