#pragma once

#include "dptk/core/cuda/error.hpp"

#include "dptk/core/detail/text.hpp"
#include "dptk/core/error.hpp"

namespace DPTK_NAMESPACE::cuda {

DPTK_INLINE std::string describe(cudaError_t status, const char* function) {
    return dptk::detail::text(function, ": ", cudaGetErrorString(status), " (", cudaGetErrorName(status),
                              ")");
}

DPTK_INLINE void check(cudaError_t status, const char* function) {
    if (status == cudaSuccess) return;
    static_cast<void>(cudaGetLastError());
    throw BackendError(describe(status, function));
}

}  // namespace DPTK_NAMESPACE::cuda
