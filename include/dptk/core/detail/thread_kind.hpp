/// Distinguishes dptk's background threads from the program's threads.
#pragma once

#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE::detail {

/// Whether this thread is one of dptk's background threads, which run none of the program's code.
inline thread_local bool is_background_thread = false;

}  // namespace DPTK_NAMESPACE::detail
