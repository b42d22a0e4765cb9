#pragma once

#include "dptk/nn/cuda/matrix_product.hpp"

#include <array>

#include "dptk/core/detail/text.hpp"
#include "dptk/core/dtype.hpp"
#include "dptk/core/error.hpp"

namespace DPTK_NAMESPACE::nn::cuda {

DPTK_INLINE cudaDataType_t cuda_type(DType type) noexcept {
    return type == DType::bf16 ? CUDA_R_16BF : CUDA_R_32F;
}

DPTK_INLINE MatrixProduct::MatrixProduct(Context& context, const ProductShape& shape)
    : context_(&context), shape_(shape) {
    const cublasComputeType_t compute =
        context.precision() == Precision::tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
    cublasLtMatmulDesc_t operation = nullptr;
    check(cublasLtMatmulDescCreate(&operation, compute, CUDA_R_32F), "cublasLtMatmulDescCreate");
    operation_.reset(operation);
    set(CUBLASLT_MATMUL_DESC_TRANSA, transposition(shape.b));
    set(CUBLASLT_MATMUL_DESC_TRANSB, transposition(shape.a));
    if (shape.epilogue != Epilogue::none)
        set(CUBLASLT_MATMUL_DESC_EPILOGUE,
            shape.epilogue == Epilogue::bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_RELU_BIAS);
    const cudaDataType_t in = cuda_type(context.type());
    const bool b_is_transposed = shape.b == Side::transposed;
    const bool a_is_transposed = shape.a == Side::transposed;
    b_ = layout(in, b_is_transposed ? shape.columns : shape.inner,
                b_is_transposed ? shape.inner : shape.columns);
    a_ = layout(in, a_is_transposed ? shape.inner : shape.rows, a_is_transposed ? shape.rows : shape.inner);
    c_ = layout(cuda_type(shape.result), shape.rows, shape.columns);
}

DPTK_INLINE void MatrixProduct::run(const void* a, const void* b, void* c, const void* bias) {
    if (bias != nullptr) set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias);
    if (!is_planned_) plan(a, b, c);
    launch(algorithm_, a, b, c);
}

DPTK_INLINE void MatrixProduct::Destroy::operator()(cublasLtMatmulDescOpaque_t* operation) const noexcept {
    static_cast<void>(cublasLtMatmulDescDestroy(operation));
}

DPTK_INLINE void MatrixProduct::Destroy::operator()(cublasLtMatrixLayoutOpaque_t* layout) const noexcept {
    static_cast<void>(cublasLtMatrixLayoutDestroy(layout));
}

DPTK_INLINE void MatrixProduct::Destroy::operator()(
    cublasLtMatmulPreferenceOpaque_t* preference) const noexcept {
    static_cast<void>(cublasLtMatmulPreferenceDestroy(preference));
}

DPTK_INLINE cublasOperation_t MatrixProduct::transposition(Side side) noexcept {
    return side == Side::transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
}

DPTK_INLINE MatrixProduct::Layout MatrixProduct::layout(cudaDataType_t type, std::size_t rows,
                                                        std::size_t columns) {
    cublasLtMatrixLayout_t made = nullptr;
    check(cublasLtMatrixLayoutCreate(&made, type, columns, rows, static_cast<std::int64_t>(columns)),
          "cublasLtMatrixLayoutCreate");
    return Layout(made);
}

DPTK_INLINE void MatrixProduct::plan(const void* a, const void* b, void* c) {
    cublasLtMatmulPreference_t made = nullptr;
    check(cublasLtMatmulPreferenceCreate(&made), "cublasLtMatmulPreferenceCreate");
    const std::unique_ptr<cublasLtMatmulPreferenceOpaque_t, Destroy> preference(made);
    const auto prefer = [&](cublasLtMatmulPreferenceAttributes_t attribute, const auto& value) {
        check(cublasLtMatmulPreferenceSetAttribute(made, attribute, &value, sizeof value),
              "cublasLtMatmulPreferenceSetAttribute");
    };
    prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, Context::blas_scratch);
    for (const auto attribute :
         {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
          CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES})
        prefer(attribute, std::uint32_t{16});  // alignment of the user's memory
    // Partial sums must not be rounded to the type of the result.
    prefer(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
           std::uint32_t{CUBLASLT_REDUCTION_SCHEME_INPLACE | CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE});
    std::array<cublasLtMatmulHeuristicResult_t, 8> found{};
    int count = 0;
    check(
        cublasLtMatmulAlgoGetHeuristic(context_->blas(), operation_.get(), b_.get(), a_.get(), c_.get(),
                                       c_.get(), made, static_cast<int>(found.size()), found.data(), &count),
        "cublasLtMatmulAlgoGetHeuristic");
    if (count == 0)
        throw BackendError(dptk::detail::text(
            "cuBLASLt has no algorithm for a matrix product with ", shape_.rows, " rows, ", shape_.columns,
            " columns, an inner dimension of ", shape_.inner, ", operands of type ",
            dtype_name(context_->type()), " and a result of type ", dtype_name(shape_.result)));
    const std::size_t best = find_fastest(*context_, static_cast<std::size_t>(count),
                                          [&](std::size_t i) { launch(found[i].algo, a, b, c); });
    algorithm_ = found[best].algo;
    is_planned_ = true;
}

DPTK_INLINE void MatrixProduct::launch(const cublasLtMatmulAlgo_t& algorithm, const void* a, const void* b,
                                       void* c) {
    const float one = 1;
    const float zero = 0;
    check(cublasLtMatmul(context_->blas(), operation_.get(), &one, b, b_.get(), a, a_.get(), &zero, c,
                         c_.get(), c, c_.get(), &algorithm, context_->scratch().data(), Context::blas_scratch,
                         context_->stream().get()),
          "cublasLtMatmul");
}

}  // namespace DPTK_NAMESPACE::nn::cuda
