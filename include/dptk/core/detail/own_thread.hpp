/// Tells the threads that dptk has started from the program's.
#pragma once

#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE::detail {

/// Whether this thread runs nothing but what dptk does in the background.
inline thread_local bool is_own_thread = false;

}  // namespace DPTK_NAMESPACE::detail
