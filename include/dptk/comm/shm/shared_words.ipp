#pragma once

#include "dptk/comm/shm/shared_words.hpp"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>
#include <ctime>

namespace DPTK_NAMESPACE::detail {

DPTK_INLINE void SharedWords::sleep_while(const Word& word, std::uint32_t value,
                                          std::chrono::nanoseconds longest) noexcept {
    const std::timespec timeout{.tv_sec = 0, .tv_nsec = longest.count()};
    static_cast<void>(syscall(SYS_futex, &word, FUTEX_WAIT, value, &timeout, nullptr, 0));
}

DPTK_INLINE void SharedWords::wake_all(const Word& word) noexcept {
    static_cast<void>(syscall(SYS_futex, &word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0));
}

}  // namespace DPTK_NAMESPACE::detail
