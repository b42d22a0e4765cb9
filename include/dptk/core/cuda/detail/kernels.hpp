/// Host functions that launch the kernels which copy, scale and accumulate gradients; kernels.cu has the
/// kernels. Each function enqueues its work on a stream and returns; pointers are to device memory.
#pragma once

#include <cstddef>
#include <span>

#include "dptk/core/config.hpp"
#include "dptk/core/dtype.hpp"
#include "dptk/core/stream_ref.hpp"

namespace DPTK_NAMESPACE::cuda::kernels {

/// One tensor of a copy. Elements are aligned to their size; memory that is aligned to 16 bytes is copied
/// faster.
struct CopiedTensor {
    const void* from = nullptr;
    void* to = nullptr;
    std::size_t count = 0;
};

/// The weight, factor / *divisor, that elements are multiplied by.
struct CopyWeight {
    double factor = 1;
    /// Points to the divisor in device memory, or is null for no divisor. If *divisor is 0, the weight is
    /// 0.
    const double* divisor = nullptr;
};

/// The types that all tensors of a copy have in common.
struct CopyFormat {
    DType from = DType::f32;
    DType to = DType::f32;
    /// Points to device memory, or is null. Set to 1 if a source element is infinite or NaN.
    int* found_nonfinite = nullptr;
};

/// Computes to[i] = weight · from[i] in f32 (in f64 if either type is f64), rounded once. If both types are
/// equal and the weight is 1, copies the bits unchanged; if the weight is 0, writes zeros, whatever `from`
/// holds. Types are f16, bf16, f32 and f64; any other type can only be copied to itself, with a weight of 1
/// or 0. Throws ArgumentError otherwise.
void copy_all(std::span<const CopiedTensor> tensors, const CopyFormat& format, const CopyWeight& weight,
              StreamRef stream);

/// Computes to[i] += factor · from[i], then sets from[i] = 0. `format.to` is f64 if `format.from` is f64,
/// otherwise f32.
void accumulate_all(std::span<const CopiedTensor> tensors, const CopyFormat& format, double factor,
                    StreamRef stream);

/// The words that all ranks sum with an all-reduce at the beginning of a step.
struct StepWords {
    double values[4] = {};
};
void write_words(double* to, const StepWords& words, StreamRef stream);

/// Writes one element of a floating-point type.
void write_scalar(void* to, DType type, double value, StreamRef stream);

/// Adds 1 to *bad_steps if the step failed: if the summed words (samples, ranks that count samples, ranks
/// that are present, ranks with a problem) show a problem, if only some of the present ranks count samples,
/// or if *status is not 0. `status` may be null.
void count_failed_step(const double* words, const void* status, DType type, double* bad_steps,
                       StreamRef stream);

}  // namespace DPTK_NAMESPACE::cuda::kernels
