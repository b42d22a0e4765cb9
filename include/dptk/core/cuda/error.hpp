/// Converts CUDA runtime errors to exceptions.
#pragma once

#if !__has_include(<cuda_runtime_api.h>)
#error "dptk's CUDA headers need the CUDA Toolkit: link dptk::cuda, or add the toolkit's include folder"
#endif
#include <cuda_runtime_api.h>

#include <string>

#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE::cuda {

/// Returns a text such as "cudaMalloc: out of memory (cudaErrorMemoryAllocation)".
[[nodiscard]] std::string describe(cudaError_t status, const char* function);

/// Throws BackendError if the status is an error. Also clears the error, which the next CUDA call would
/// otherwise report again.
void check(cudaError_t status, const char* function);

}  // namespace DPTK_NAMESPACE::cuda

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/core/cuda/error.ipp"
#endif
