/// A product of two matrices by cuBLASLt, planned once and run many times.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "dptk/core/config.hpp"
#include "dptk/nn/cuda/context.hpp"

namespace DPTK_NAMESPACE::nn::cuda {

[[nodiscard]] cudaDataType_t cuda_type(DType type) noexcept;

/// How a row-major matrix takes part.
enum class Side : std::uint8_t { as_it_is, transposed };

/// What is done to each row of the result.
enum class Epilogue : std::uint8_t { none, bias, bias_and_relu };

/// C [rows, columns] = op(A) · op(B), with `inner` products for each element; all row-major and dense.
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
    /// cuBLASLt's matrices are column-major: what is ours is their transpose, and Cᵀ = op(B)ᵀ · op(A)ᵀ.
    MatrixProduct(Context& context, const ProductShape& shape);

    /// \param bias one for each column, of the result's type; null where the epilogue takes none
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

    /// Of a row-major matrix.
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
