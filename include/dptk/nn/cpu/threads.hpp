/// The number of threads that oneDNN uses, for programs that run several ranks on one machine.
#pragma once

#include <dlfcn.h>

#include "dptk/core/config.hpp"
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
    // Looks up the function in the OpenMP runtime that oneDNN has already loaded, libgomp or libomp. A
    // direct call would require every program that includes this header to be compiled with OpenMP, and
    // might load a second runtime.
    using SetNumThreads = void (*)(int);
    const auto set = reinterpret_cast<SetNumThreads>(::dlsym(RTLD_DEFAULT, "omp_set_num_threads"));
    if (set == nullptr) return false;
    set(threads);
    return true;
}

}  // namespace DPTK_NAMESPACE::nn::cpu
