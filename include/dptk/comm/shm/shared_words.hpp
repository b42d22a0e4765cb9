/// Atomic words in shared memory, and a futex to wait until one of them changes: the primitives of the
/// shared-memory barrier.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE::detail {

/// The machine on which the shared-memory protocols run. Tests replace it by a model.
struct SharedWords {
    using Word = std::atomic<std::uint32_t>;
    using LongWord = std::atomic<std::uint64_t>;
    static_assert(Word::is_always_lock_free && LongWord::is_always_lock_free);

    /// Sleeps while the word has this value, for at most `longest`. May wake up earlier.
    static void sleep_while(const Word& word, std::uint32_t value, std::chrono::nanoseconds longest) noexcept;

    static void wake_all(const Word& word) noexcept;

    /// Called between two polls of a word that a running thread will change soon.
    static void pause() noexcept {
#if defined(__x86_64__)
        __builtin_ia32_pause();
#elif defined(__aarch64__)
        asm volatile("yield");
#endif
    }

    /// Called between two polls of a word that a thread without a processor may have to change.
    static void yield() noexcept { sched_yield(); }
};

}  // namespace DPTK_NAMESPACE::detail

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/comm/shm/shared_words.ipp"
#endif
