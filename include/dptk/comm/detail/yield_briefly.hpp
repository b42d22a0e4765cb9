/// yield_briefly(), for threads that wait for another one and then sleep.
#pragma once

#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE::detail {

/// Yields the processor to the threads that can run. Returns false if the caller is to sleep instead of
/// yielding again: if a yield of this thread took longer than 200 microseconds within the last 100
/// milliseconds. Then other programs need the processor, and each yield would wait for a time slice of
/// theirs, whereas a thread that sleeps runs soon after it is woken.
[[nodiscard]] bool yield_briefly() noexcept;

}  // namespace DPTK_NAMESPACE::detail

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/comm/detail/yield_briefly.ipp"
#endif
