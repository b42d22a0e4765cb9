/// Tells the threads that dptk has started from the program's.
#pragma once

namespace dptk::detail {

/// Whether this thread runs nothing but what dptk does in the background.
inline thread_local bool is_own_thread = false;

}  // namespace dptk::detail
