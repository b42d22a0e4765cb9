/// use_signal_stack(), a separate stack for the signal handlers of a thread.
#pragma once

#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE::detail {

/// Sets a separate stack for handlers with SA_ONSTACK that interrupt the calling thread, until the thread
/// ends. Some libraries use the stack pointer for other memory: see SignalDelay. Does nothing if the thread
/// has such a stack already.
void use_signal_stack();

}  // namespace DPTK_NAMESPACE::detail

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/control/process/signal_stack.ipp"
#endif
