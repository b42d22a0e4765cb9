/// The kernels that gradients travel with, as plain host functions: kernels.cu has them. Each puts its work
/// on a stream and returns; pointers are to device memory.
#pragma once

#include <cstddef>
#include <span>

#include "dptk/core/config.hpp"
#include "dptk/core/dtype.hpp"
#include "dptk/core/stream_ref.hpp"

namespace DPTK_NAMESPACE::cuda::kernels {

/// A tensor of a copy. Elements are aligned to their size; what is aligned to 16 bytes is copied faster.
struct CopiedTensor {
    const void* from = nullptr;
    void* to = nullptr;
    std::size_t count = 0;
};

/// What elements are multiplied by.
struct CopyWeight {
    double factor = 1;
    /// In device memory, or null: what the factor is divided by. Where it is 0, the weight is 0.
    const double* divisor = nullptr;
};

/// Of all tensors of a copy.
struct CopyFormat {
    DType from = DType::f32;
    DType to = DType::f32;
    /// In device memory, or null: becomes 1 where an element that is read is infinite or not a number.
    int* found_nonfinite = nullptr;
};

/// to[i] = weight · from[i] in f32 (f64 where one of the two is that), rounded once; bits as they are where
/// the types are one and the weight is 1, and zeros where it is 0, whatever `from` holds. Types are f16,
/// bf16, f32 and f64; any other goes to itself, with a weight of 1 or 0. Throws ArgumentError otherwise.
void copy_all(std::span<const CopiedTensor> tensors, const CopyFormat& format, const CopyWeight& weight,
              StreamRef stream);

/// to[i] += factor · from[i], and from[i] = 0. `format.to` is f32, or f64 for f64.
void accumulate_all(std::span<const CopiedTensor> tensors, const CopyFormat& format, double factor,
                    StreamRef stream);

/// The words that the ranks of a training sum up at the beginning of a step.
struct StepWords {
    double values[4] = {};
};
void write_words(double* to, const StepWords& words, StreamRef stream);

/// One element of a floating-point type.
void write_scalar(void* to, DType type, double value, StreamRef stream);

/// Adds 1 to *bad_steps where the sums of the step's words (samples, ranks that count them, ranks that are
/// present, ranks with a problem) show a problem, or that only some of those present count; or where *status
/// is not 0; status may be null.
void judge_step(const double* words, const void* status, DType type, double* bad_steps, StreamRef stream);

}  // namespace DPTK_NAMESPACE::cuda::kernels
