/// Words in memory that processes share, and how to wait until one of them changes: what the meetings of
/// ranks on one host are made of.
#pragma once

#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <climits>
#include <cstdint>
#include <ctime>

namespace dptk::detail {

/// The machine as protocols in shared memory see it; tests put another one in its place.
struct SharedWords {
    using Word = std::atomic<std::uint32_t>;
    using LongWord = std::atomic<std::uint64_t>;
    static_assert(Word::is_always_lock_free && LongWord::is_always_lock_free);

    /// Sleeps while the word has this value; for at most `longest`, perhaps shorter.
    static void sleep_while(const Word& word, std::uint32_t value,
                            std::chrono::nanoseconds longest) noexcept {
        const std::timespec timeout{.tv_sec = 0, .tv_nsec = longest.count()};
        static_cast<void>(syscall(SYS_futex, &word, FUTEX_WAIT, value, &timeout, nullptr, 0));
    }

    static void wake_all(const Word& word) noexcept {
        static_cast<void>(syscall(SYS_futex, &word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0));
    }

    /// Between two looks at a word that will change at once.
    static void pause() noexcept {
#if defined(__x86_64__)
        __builtin_ia32_pause();
#elif defined(__aarch64__)
        asm volatile("yield");
#endif
    }

    /// Between two looks at a word that somebody without a processor of its own will change.
    static void yield() noexcept { sched_yield(); }
};

}  // namespace dptk::detail
