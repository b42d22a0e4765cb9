/// How many threads oneDNN computes with, for programs that run several ranks on one machine.
#pragma once

#include <dlfcn.h>

#include "dptk/core/error.hpp"
#include "dptk/core/text.hpp"

namespace dptk::nn::cpu {

/// Sets the number of threads for networks that the calling thread runs from now on; best called before they
/// are made, since the layout of parameters may depend on it. Returns false, and does nothing, where oneDNN
/// was not built with OpenMP. \throws ArgumentError where `threads` is not positive
inline bool set_num_threads(int threads) {
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

}  // namespace dptk::nn::cpu
