/// The number of threads that oneDNN uses, for programs that run several ranks on one machine.
#pragma once

#include "dptk/core/config.hpp"
#include "dptk/core/detail/openmp.hpp"
#include "dptk/core/detail/text.hpp"
#include "dptk/core/error.hpp"

namespace DPTK_NAMESPACE::nn::cpu {

/// Sets the number of threads for networks that the calling thread runs from now on. Call it before the
/// networks are made, since the layout of parameters may depend on the number of threads. Returns false and
/// does nothing if no OpenMP runtime is loaded, as with a oneDNN that was built without OpenMP. Throws
/// ArgumentError if `threads` is not positive.
inline bool set_num_threads(int threads) {
    if (threads < 1)
        throw ArgumentError(dptk::detail::text("set_num_threads: expected at least 1 thread, got ", threads));
    auto* const set = dptk::detail::OpenMp::find<void(int)>("omp_set_num_threads");
    if (set == nullptr) return false;
    set(threads);
    return true;
}

}  // namespace DPTK_NAMESPACE::nn::cpu
