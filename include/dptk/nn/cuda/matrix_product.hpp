/// A product of two matrices with cuBLASLt, planned once and run many times.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "dptk/core/config.hpp"
#include "dptk/core/detail/text.hpp"
#include "dptk/core/dtype.hpp"
#include "dptk/core/error.hpp"
#include "dptk/nn/cuda/context.hpp"

namespace DPTK_NAMESPACE::nn::cuda {

[[nodiscard]] inline cudaDataType_t cuda_type(DType type) noexcept {
    return type == DType::bf16 ? CUDA_R_16BF : CUDA_R_32F;
}

/// Whether a row-major matrix is transposed in the product.
enum class Side : std::uint8_t { as_it_is, transposed };

/// C [rows, columns] = op(A) · op(B), with the inner dimension `inner`. Matrices are row-major and dense.
struct ProductShape {
    std::size_t rows = 0;
    std::size_t columns = 0;
    std::size_t inner = 0;
    Side a = Side::as_it_is;
    Side b = Side::as_it_is;
    DType result = DType::f32;
    bool has_bias = false;  ///< Whether a bias is added to each row.
    bool has_relu = false;  ///< Whether max(x, 0) is then applied.
};

class MatrixProduct {
  public:
    /// Creates the cuBLASLt descriptors of the product; the first run() selects the algorithm. cuBLASLt
    /// reads a row-major matrix as its column-major transpose, so it computes Cᵀ = op(B)ᵀ · op(A)ᵀ.
    MatrixProduct(Context& context, const ProductShape& shape) : context_(&context), shape_(shape) {
        const cublasComputeType_t compute =
            context.precision() == Precision::tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
        cublasLtMatmulDesc_t operation = nullptr;
        check(cublasLtMatmulDescCreate(&operation, compute, CUDA_R_32F), "cublasLtMatmulDescCreate");
        operation_.reset(operation);
        set(CUBLASLT_MATMUL_DESC_TRANSA, transposition(shape.b));
        set(CUBLASLT_MATMUL_DESC_TRANSB, transposition(shape.a));
        const cublasLtEpilogue_t with_bias =
            shape.has_relu ? CUBLASLT_EPILOGUE_RELU_BIAS : CUBLASLT_EPILOGUE_BIAS;
        const cublasLtEpilogue_t without =
            shape.has_relu ? CUBLASLT_EPILOGUE_RELU : CUBLASLT_EPILOGUE_DEFAULT;
        set(CUBLASLT_MATMUL_DESC_EPILOGUE, shape.has_bias ? with_bias : without);
        const cudaDataType_t in = cuda_type(context.type());
        const bool b_is_transposed = shape.b == Side::transposed;
        const bool a_is_transposed = shape.a == Side::transposed;
        b_ = layout(in, b_is_transposed ? shape.columns : shape.inner,
                    b_is_transposed ? shape.inner : shape.columns);
        a_ = layout(in, a_is_transposed ? shape.inner : shape.rows,
                    a_is_transposed ? shape.rows : shape.inner);
        c_ = layout(cuda_type(shape.result), shape.rows, shape.columns);
    }

    /// `bias` has one element for each column, in the result's type. It is null if the product has no bias.
    void run(const void* a, const void* b, void* c, const void* bias = nullptr) {
        if (bias != nullptr) set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias);
        if (!is_planned_) plan(a, b, c);
        launch(algorithm_, a, b, c);
    }

  private:
    struct Destroy {
        void operator()(cublasLtMatmulDescOpaque_t* operation) const noexcept {
            static_cast<void>(cublasLtMatmulDescDestroy(operation));
        }
        void operator()(cublasLtMatrixLayoutOpaque_t* layout) const noexcept {
            static_cast<void>(cublasLtMatrixLayoutDestroy(layout));
        }
        void operator()(cublasLtMatmulPreferenceOpaque_t* preference) const noexcept {
            static_cast<void>(cublasLtMatmulPreferenceDestroy(preference));
        }
    };
    using Layout = std::unique_ptr<cublasLtMatrixLayoutOpaque_t, Destroy>;

    [[nodiscard]] static cublasOperation_t transposition(Side side) noexcept {
        return side == Side::transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
    }

    template <class Value>
    void set(cublasLtMatmulDescAttributes_t attribute, const Value& value) {
        check(cublasLtMatmulDescSetAttribute(operation_.get(), attribute, &value, sizeof value),
              "cublasLtMatmulDescSetAttribute");
    }

    /// Returns the layout of a row-major matrix.
    [[nodiscard]] static Layout layout(cudaDataType_t type, std::size_t rows, std::size_t columns) {
        cublasLtMatrixLayout_t made = nullptr;
        check(cublasLtMatrixLayoutCreate(&made, type, columns, rows, static_cast<std::int64_t>(columns)),
              "cublasLtMatrixLayoutCreate");
        return Layout(made);
    }

    void plan(const void* a, const void* b, void* c) {
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
        check(cublasLtMatmulAlgoGetHeuristic(context_->blas(), operation_.get(), b_.get(), a_.get(), c_.get(),
                                             c_.get(), made, static_cast<int>(found.size()), found.data(),
                                             &count),
              "cublasLtMatmulAlgoGetHeuristic");
        if (count == 0)
            throw BackendError(dptk::detail::text(
                "cuBLASLt has no algorithm for a matrix product with ", shape_.rows, " rows, ",
                shape_.columns, " columns, an inner dimension of ", shape_.inner, ", operands of type ",
                dtype_name(context_->type()), " and a result of type ", dtype_name(shape_.result)));
        const std::size_t best = find_fastest(*context_, static_cast<std::size_t>(count),
                                              [&](std::size_t i) { launch(found[i].algo, a, b, c); });
        algorithm_ = found[best].algo;
        is_planned_ = true;
    }

    void launch(const cublasLtMatmulAlgo_t& algorithm, const void* a, const void* b, void* c) {
        const float one = 1;
        const float zero = 0;
        check(cublasLtMatmul(context_->blas(), operation_.get(), &one, b, b_.get(), a, a_.get(), &zero, c,
                             c_.get(), c, c_.get(), &algorithm, context_->scratch().data(),
                             Context::blas_scratch, context_->stream().get()),
              "cublasLtMatmul");
    }

    Context* context_;
    ProductShape shape_;
    std::unique_ptr<cublasLtMatmulDescOpaque_t, Destroy> operation_;
    Layout a_;
    Layout b_;
    Layout c_;
    cublasLtMatmulAlgo_t algorithm_{};
    bool is_planned_ = false;
};

}  // namespace DPTK_NAMESPACE::nn::cuda
