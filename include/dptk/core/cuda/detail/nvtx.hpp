/// Shows trace spans as NVTX ranges in Nsight Systems and Nsight Compute. Including this header registers
/// the profiler if the program was started by one of these tools.
#pragma once

#include "dptk/core/config.hpp"

#if __has_include(<nvtx3/nvToolsExt.h>)
#include <nvtx3/nvToolsExt.h>

#include <cstdlib>

#include "dptk/core/trace.hpp"

namespace DPTK_NAMESPACE::cuda::detail {

inline constexpr trace::Profiler nvtx_profiler = {
    .begin = [](const char* name) { static_cast<void>(nvtxRangePushA(name)); },
    .end = [] { static_cast<void>(nvtxRangePop()); },
};

inline const bool nvtx_is_registered = [] {
    const bool is_profiled = std::getenv("NVTX_INJECTION64_PATH") != nullptr;  // set by the profiler
    if (is_profiled) trace::profiler = &nvtx_profiler;
    return is_profiled;
}();

}  // namespace DPTK_NAMESPACE::cuda::detail
#endif
