/// use_signal_stack(), a separate stack for the signal handlers of a thread.
#pragma once

#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE::detail {

/// Lets signal handlers that are set with SA_ONSTACK run on a stack of their own when they interrupt the
/// calling thread, until it ends. A library may use the stack pointer for other memory: see SignalDelay. Does
/// nothing if the thread has such a stack already.
void use_signal_stack();

}  // namespace DPTK_NAMESPACE::detail

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/control/process/signal_stack.ipp"
#endif
