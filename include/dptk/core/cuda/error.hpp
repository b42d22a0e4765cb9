/// Errors of the CUDA runtime as exceptions.
#pragma once

#if !__has_include(<cuda_runtime_api.h>)
#error "dptk's CUDA headers need the CUDA Toolkit: link dptk::cuda, or add the toolkit's include folder"
#endif
#include <cuda_runtime_api.h>

#include <string>

#include "dptk/core/error.hpp"
#include "dptk/core/text.hpp"

namespace dptk::cuda {

/// "cudaMalloc: out of memory (cudaErrorMemoryAllocation)"
[[nodiscard]] inline std::string describe(cudaError_t status, const char* function) {
    return dptk::detail::text(function, ": ", cudaGetErrorString(status), " (", cudaGetErrorName(status),
                              ")");
}

/// Throws BackendError where the function has failed. Forgets an error that the next call would report again.
inline void check(cudaError_t status, const char* function) {
    if (status == cudaSuccess) return;
    static_cast<void>(cudaGetLastError());
    throw BackendError(describe(status, function));
}

}  // namespace dptk::cuda
