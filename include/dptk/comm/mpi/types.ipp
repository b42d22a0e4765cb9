#pragma once

#include "dptk/comm/mpi/types.hpp"

#include <array>

#include "dptk/comm/algorithms/local_reduce.hpp"

namespace DPTK_NAMESPACE::detail {

DPTK_INLINE MPI_Datatype mpi_datatype(DType dtype) {
    if (dtype == DType::f32) [[likely]]
        return MPI_FLOAT;
    switch (dtype) {
        case DType::boolean:  // values are 0 or 1, so that bitwise operations on bytes equal logical ones
        case DType::u8: return MPI_UINT8_T;
        case DType::i8: return MPI_INT8_T;
        case DType::i16: return MPI_INT16_T;
        case DType::f16:
        case DType::bf16:  // MPI only transfers 16-bit floats and never reduces them
        case DType::u16: return MPI_UINT16_T;
        case DType::i32: return MPI_INT32_T;
        case DType::u32: return MPI_UINT32_T;
        case DType::i64: return MPI_INT64_T;
        case DType::u64: return MPI_UINT64_T;
        case DType::f32: return MPI_FLOAT;
        case DType::f64: return MPI_DOUBLE;
        case DType::c64: return MPI_C_FLOAT_COMPLEX;
        case DType::c128: return MPI_C_DOUBLE_COMPLEX;
        case DType::opaque: return MPI_BYTE;
    }
    throw ArgumentError(text("no MPI datatype for ", dtype_name(dtype)));
}

DPTK_INLINE std::size_t mpi_count(const Buffer& buffer) noexcept {
    return buffer.dtype == DType::opaque ? buffer.bytes() : buffer.count;
}

DPTK_INLINE MpiMessageType::MpiMessageType(const Buffer& buffer) : type_(mpi_datatype(buffer.dtype)) {
    const std::size_t all = mpi_count(buffer);
    if (all <= block) {
        count_ = static_cast<int>(all);
        return;
    }
    MPI_Datatype blocks = MPI_DATATYPE_NULL;
    MPI_Datatype rest = MPI_DATATYPE_NULL;
    const MPI_Datatype element = type_;
    MPI_Aint lower = 0;
    MPI_Aint size = 0;
    MPI_Type_get_extent(element, &lower, &size);
    MPI_Datatype one_block = MPI_DATATYPE_NULL;
    MPI_Type_contiguous(static_cast<int>(block), element, &one_block);
    MPI_Type_contiguous(static_cast<int>(all / block), one_block, &blocks);
    MPI_Type_contiguous(static_cast<int>(all % block), element, &rest);
    const std::array<int, 2> lengths = {1, 1};
    const std::array<MPI_Aint, 2> places = {0, static_cast<MPI_Aint>(all / block * block) * size};
    const std::array<MPI_Datatype, 2> types = {blocks, rest};
    check_mpi(MPI_Type_create_struct(2, lengths.data(), places.data(), types.data(), &type_),
              "MPI_Type_create_struct");
    check_mpi(MPI_Type_commit(&type_), "MPI_Type_commit");
    for (MPI_Datatype* part : {&one_block, &blocks, &rest}) MPI_Type_free(part);
    count_ = 1;
    owned_ = true;
}

DPTK_INLINE MpiMessageType::~MpiMessageType() {
    if (owned_) MPI_Type_free(&type_);
}

/// The function of an MPI operation: computes inout = inout combined with in.
template <ReduceOp op>
void combine_for_mpi(void* in, void* inout, int* count, MPI_Datatype* type) {
    const Buffer into{inout, static_cast<std::size_t>(*count), *type == MPI_FLOAT ? DType::f32 : DType::f64};
    combine(into, into.at(in), op);
}

/// Makes an operation at the first call. It lives as long as MPI does.
template <ReduceOp op>
[[nodiscard]] MPI_Op own_mpi_op() {
    static const MPI_Op made = [] {
        MPI_Op operation = MPI_OP_NULL;
        check_mpi(MPI_Op_create(&combine_for_mpi<op>, 1, &operation), "MPI_Op_create");
        return operation;
    }();
    return made;
}

DPTK_INLINE bool has_own_mpi_op(ReduceOp op, DType dtype) noexcept {
    return is_floating(dtype) && (op == ReduceOp::min || op == ReduceOp::max);
}

DPTK_INLINE MPI_Op mpi_op(ReduceOp op, DType dtype) {
    if (op == ReduceOp::sum) return MPI_SUM;
    if (has_own_mpi_op(op, dtype))
        return op == ReduceOp::min ? own_mpi_op<ReduceOp::min>() : own_mpi_op<ReduceOp::max>();
    switch (op) {
        case ReduceOp::sum:
        case ReduceOp::avg: return MPI_SUM;
        case ReduceOp::product: return MPI_PROD;
        case ReduceOp::min: return MPI_MIN;
        case ReduceOp::max: return MPI_MAX;
        case ReduceOp::band: return MPI_BAND;
        case ReduceOp::bor: return MPI_BOR;
        case ReduceOp::bxor: return MPI_BXOR;
    }
    throw ArgumentError(text("no MPI operation for ", reduce_op_name(op)));
}

}  // namespace DPTK_NAMESPACE::detail
