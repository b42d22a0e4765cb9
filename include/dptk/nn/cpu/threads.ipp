#pragma once

#include "dptk/nn/cpu/threads.hpp"

#include <dlfcn.h>

#include "dptk/core/detail/text.hpp"
#include "dptk/core/error.hpp"

namespace DPTK_NAMESPACE::nn::cpu {

DPTK_INLINE bool set_num_threads(int threads) {
    if (threads < 1)
        throw ArgumentError(
            dptk::detail::text("set_num_threads: ", threads, " threads; there must be at least 1"));
    // The function of the OpenMP runtime that oneDNN has already loaded, libgomp or libomp. Calling it by
    // name would make every program that includes this be compiled with OpenMP, and perhaps load a second
    // runtime.
    using SetNumThreads = void (*)(int);
    const auto set = reinterpret_cast<SetNumThreads>(::dlsym(RTLD_DEFAULT, "omp_set_num_threads"));
    if (set == nullptr) return false;
    set(threads);
    return true;
}

}  // namespace DPTK_NAMESPACE::nn::cpu
