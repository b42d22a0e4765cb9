/// The number of threads that oneDNN uses, for programs that run several ranks on one machine.
#pragma once

#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE::nn::cpu {

/// Sets the number of threads for networks that the calling thread runs from now on. Call it before the
/// networks are made, since the layout of parameters may depend on the number of threads. Returns false and
/// does nothing if no OpenMP runtime is loaded, as with a oneDNN that was built without OpenMP. Throws
/// ArgumentError if `threads` is not positive.
bool set_num_threads(int threads);

}  // namespace DPTK_NAMESPACE::nn::cpu

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/core/error.hpp"
#include "dptk/nn/cpu/threads.ipp"
#endif
