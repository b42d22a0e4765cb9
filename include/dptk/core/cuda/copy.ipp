#pragma once

#include "dptk/core/cuda/copy.hpp"

#include "dptk/core/cuda/error.hpp"

namespace DPTK_NAMESPACE::cuda::detail {

DPTK_INLINE void copy_bytes(void* to, const void* from, std::size_t bytes, StreamRef stream) {
    if (bytes == 0) return;
    check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream.get()), "cudaMemcpyAsync");
}

DPTK_INLINE void check_sizes(const char* function, std::size_t from, std::size_t to) {
    if (from == to) return;
    throw ArgumentError(
        dptk::detail::text(function, ": expected a destination of ", from, " elements, got ", to));
}

}  // namespace DPTK_NAMESPACE::cuda::detail
