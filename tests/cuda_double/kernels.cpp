// Test double for dptk's kernels: runs the same functions as loops on a stream's thread.
#include <dptk/core/cuda/detail/kernels.hpp>

#include <cmath>
#include <cstring>
#include <vector>

#include "cuda_double/launch.hpp"

namespace DPTK_NAMESPACE::cuda::kernels {

namespace {

using cuda_double::at;
using cuda_double::launch;
using cuda_double::narrow;
using cuda_double::wide;
using cuda_double::with_type;

double factor_of(const CopyWeight& weight, int device) {
    if (weight.divisor == nullptr) return weight.factor;
    const double divisor = *at<double>(weight.divisor, 1, device, "a weight's divisor");
    return divisor == 0 ? 0 : weight.factor / divisor;
}

template <class From, class To>
void copy(const CopiedTensor& tensor, double factor, int* found_nonfinite, int device) {
    To* to = at<To>(tensor.to, tensor.count, device, "copy_kernel");
    if (factor == 0) {
        std::memset(static_cast<void*>(to), 0, tensor.count * sizeof(To));
        return;
    }
    const From* from = at<From>(tensor.from, tensor.count, device, "copy_kernel");
    for (std::size_t i = 0; i < tensor.count; ++i) {
        const double value = wide(from[i]);
        if (found_nonfinite != nullptr && !std::isfinite(value))
            *at<int>(found_nonfinite, 1, device, "copy_kernel") = 1;
        to[i] = narrow<To>(value * factor);
    }
}

}  // namespace

void copy_all(std::span<const CopiedTensor> tensors, const CopyFormat& format, const CopyWeight& weight,
              StreamRef stream) {
    const bool is_plain =
        format.from == format.to && weight.divisor == nullptr && (weight.factor == 1 || weight.factor == 0);
    const bool is_floating = with_type(format.from, [](auto) {}) && with_type(format.to, [](auto) {});
    if (!is_floating && !is_plain)
        throw ArgumentError("copy_all: expected dtype f16, bf16, f32 or f64 for a weight or a conversion");
    launch("copy_kernel", stream,
           [all = std::vector(tensors.begin(), tensors.end()), format, weight, is_floating](int device) {
               const double factor = factor_of(weight, device);
               for (const CopiedTensor& tensor : all) {
                   if (!is_floating) {
                       const std::size_t bytes = tensor.count * dtype_size(format.from);
                       auto* to = at<std::byte>(tensor.to, bytes, device, "copy_kernel");
                       if (factor == 0) {
                           std::memset(to, 0, bytes);
                       } else {
                           std::memmove(to, at<std::byte>(tensor.from, bytes, device, "copy_kernel"), bytes);
                       }
                       continue;
                   }
                   static_cast<void>(with_type(format.from, [&]<class From>(From) {
                       static_cast<void>(with_type(format.to, [&]<class To>(To) {
                           copy<From, To>(tensor, factor, format.found_nonfinite, device);
                       }));
                   }));
               }
           });
}

void accumulate_all(std::span<const CopiedTensor> tensors, const CopyFormat& format, double factor,
                    StreamRef stream) {
    launch("accumulate_kernel", stream,
           [all = std::vector(tensors.begin(), tensors.end()), format, factor](int device) {
               for (const CopiedTensor& tensor : all) {
                   static_cast<void>(with_type(format.from, [&]<class From>(From) {
                       using To = std::conditional_t<std::is_same_v<From, double>, double, float>;
                       From* from = at<From>(tensor.from, tensor.count, device, "accumulate_kernel");
                       To* to = at<To>(tensor.to, tensor.count, device, "accumulate_kernel");
                       for (std::size_t i = 0; i < tensor.count; ++i) {
                           to[i] = static_cast<To>(to[i] + factor * wide(from[i]));
                           from[i] = From{};
                       }
                   }));
               }
           });
}

void write_words(double* to, const StepWords& words, StreamRef stream) {
    launch("write_words_kernel", stream, [=](int device) {
        std::memcpy(at<double>(to, 4, device, "write_words_kernel"), words.values, sizeof words.values);
    });
}

void write_scalar(void* to, DType type, double value, StreamRef stream) {
    launch("write_scalar_kernel", stream, [=](int device) {
        static_cast<void>(with_type(
            type, [&]<class T>(T) { *at<T>(to, 1, device, "write_scalar_kernel") = narrow<T>(value); }));
    });
}

void count_failed_step(const double* words, const void* status, DType type, double* bad_steps,
                       StreamRef stream) {
    launch("judge_step_kernel", stream, [=](int device) {
        const double* sums = at<double>(words, 4, device, "judge_step_kernel");
        bool is_bad = sums[3] != 0 || (sums[1] != 0 && sums[1] != sums[2]);
        static_cast<void>(with_type(type, [&]<class T>(T) {
            is_bad =
                is_bad || (status != nullptr && !(wide(*at<T>(status, 1, device, "judge_step_kernel")) == 0));
        }));
        if (is_bad) *at<double>(bad_steps, 1, device, "judge_step_kernel") += 1;
    });
}

}  // namespace DPTK_NAMESPACE::cuda::kernels
