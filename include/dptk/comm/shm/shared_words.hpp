/// Atomic words in shared memory, and a futex to wait until one of them changes: the primitives of the
/// shared-memory barrier.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

#include "dptk/comm/detail/yield_briefly.hpp"
#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE::detail {

/// The template argument `Machine` of the shared-memory barrier. Tests replace it by a model.
struct SharedWords {
    using Word = std::atomic<std::uint32_t>;
    using LongWord = std::atomic<std::uint64_t>;
    static_assert(Word::is_always_lock_free && LongWord::is_always_lock_free);

    /// Sleeps while the word has this value, for at most `longest`. May wake up earlier.
    static void sleep_while(const Word& word, std::uint32_t value, std::chrono::nanoseconds longest) noexcept;

    static void wake_all(const Word& word) noexcept;

    /// Called between two polls if a thread that is running will change the word soon.
    static void pause() noexcept {
#if defined(__x86_64__)
        __builtin_ia32_pause();
#elif defined(__aarch64__)
        asm volatile("yield");
#endif
    }

    /// Called between two polls if the thread that will change the word may need this processor. Returns
    /// false if the caller is to sleep instead of the next poll.
    [[nodiscard]] static bool yield() noexcept { return yield_briefly(); }
};

}  // namespace DPTK_NAMESPACE::detail

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/comm/shm/shared_words.ipp"
#endif
