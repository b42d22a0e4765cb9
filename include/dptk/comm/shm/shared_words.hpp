/// Words in memory that processes share, and how to wait until one of them changes: what the barriers of
/// ranks on one host are made of.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE::detail {

/// The machine as protocols in shared memory see it; tests put another one in its place.
struct SharedWords {
    using Word = std::atomic<std::uint32_t>;
    using LongWord = std::atomic<std::uint64_t>;
    static_assert(Word::is_always_lock_free && LongWord::is_always_lock_free);

    /// Sleeps while the word has this value; for at most `longest`, perhaps shorter.
    static void sleep_while(const Word& word, std::uint32_t value, std::chrono::nanoseconds longest) noexcept;

    static void wake_all(const Word& word) noexcept;

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

}  // namespace DPTK_NAMESPACE::detail

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/comm/shm/shared_words.ipp"
#endif
