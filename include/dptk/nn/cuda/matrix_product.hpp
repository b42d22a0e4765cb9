/// A product of two matrices with cuBLASLt, planned once and run many times.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "dptk/core/config.hpp"
#include "dptk/nn/cuda/context.hpp"

namespace DPTK_NAMESPACE::nn::cuda {

[[nodiscard]] cudaDataType_t cuda_type(DType type) noexcept;

/// Whether a row-major matrix is transposed in the product.
enum class Side : std::uint8_t { as_it_is, transposed };

/// The operation that is applied to each row of the result.
enum class Epilogue : std::uint8_t { none, bias, bias_and_relu };

/// C [rows, columns] = op(A) · op(B), with the inner dimension `inner`. Matrices are row-major and dense.
struct ProductShape {
    std::size_t rows = 0;
    std::size_t columns = 0;
    std::size_t inner = 0;
    Side a = Side::as_it_is;
    Side b = Side::as_it_is;
    DType result = DType::f32;
    Epilogue epilogue = Epilogue::none;
};

class MatrixProduct {
  public:
    /// Creates the cuBLASLt descriptors of the product; the first run() selects the algorithm. cuBLASLt
    /// reads a row-major matrix as its column-major transpose, so it computes Cᵀ = op(B)ᵀ · op(A)ᵀ.
    MatrixProduct(Context& context, const ProductShape& shape);

    /// `bias` has one element for each column, in the result's type. It is null if the epilogue has no bias.
    void run(const void* a, const void* b, void* c, const void* bias = nullptr);

  private:
    struct Destroy {
        void operator()(cublasLtMatmulDescOpaque_t* operation) const noexcept;
        void operator()(cublasLtMatrixLayoutOpaque_t* layout) const noexcept;
        void operator()(cublasLtMatmulPreferenceOpaque_t* preference) const noexcept;
    };
    using Layout = std::unique_ptr<cublasLtMatrixLayoutOpaque_t, Destroy>;

    [[nodiscard]] static cublasOperation_t transposition(Side side) noexcept;

    template <class Value>
    void set(cublasLtMatmulDescAttributes_t attribute, const Value& value) {
        check(cublasLtMatmulDescSetAttribute(operation_.get(), attribute, &value, sizeof value),
              "cublasLtMatmulDescSetAttribute");
    }

    /// Returns the layout of a row-major matrix.
    [[nodiscard]] static Layout layout(cudaDataType_t type, std::size_t rows, std::size_t columns);

    void plan(const void* a, const void* b, void* c);

    void launch(const cublasLtMatmulAlgo_t& algorithm, const void* a, const void* b, void* c);

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

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/nn/cuda/matrix_product.ipp"
#endif
