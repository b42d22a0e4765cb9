/// Barrier in shared memory for the ranks of one host. Each rank publishes a record and spins until all
/// records are there; after a while it sleeps on a futex. tests/threads/shm_barrier.cpp checks all
/// interleavings of the ranks' atomic operations.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>

#include "dptk/comm/shm/shared_words.hpp"
#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE::detail {

/// How often a waiting rank polls before it sleeps.
struct SpinPolicy {
    /// Polls that keep the processor. Only useful if every rank has a processor of its own.
    int spins = 0;
    /// Polls that yield the processor, at most.
    int yields = 4;
};

/// Event count: lets ranks sleep until another rank notifies them. Must lie in shared memory that is
/// initially zero.
template <class Machine>
struct alignas(64) EventCount {
    typename Machine::Word events;
    typename Machine::Word sleepers;

    /// Wakes the sleeping ranks. Call after a sequentially consistent store that other ranks may wait for.
    void notify_all() noexcept {
        if (sleepers.load(std::memory_order_seq_cst) == 0) return;
        events.fetch_add(1, std::memory_order_seq_cst);
        Machine::wake_all(events);
    }

    /// Blocks until is_ready() returns true; the loads of is_ready() must be sequentially consistent. Calls
    /// idle() before each sleep: idle() may throw, or return true to keep polling without sleep.
    template <class Ready, class Idle>
    void wait(Ready&& is_ready, Idle&& idle, SpinPolicy spin_policy) {
        for (int poll = 0; poll < spin_policy.spins; ++poll) {
            if (is_ready()) return;
            Machine::pause();
        }
        for (int poll = 0; poll < spin_policy.yields; ++poll) {
            if (is_ready()) return;
            if (!Machine::yield()) break;
        }
        const Sleeper counted(*this);
        while (true) {
            const std::uint32_t seen = events.load(std::memory_order_seq_cst);
            if (is_ready()) return;
            if (idle()) {
                static_cast<void>(Machine::yield());
            } else {
                Machine::sleep_while(events, seen, longest_sleep);
            }
        }
    }

  private:
    /// Bounds the sleep: a failed job wakes nobody.
    static constexpr std::chrono::milliseconds longest_sleep{5};

    struct Sleeper {
        explicit Sleeper(EventCount& event_) : event(event_) {
            event.sleepers.fetch_add(1, std::memory_order_seq_cst);
        }
        ~Sleeper() { event.sleepers.fetch_sub(1, std::memory_order_seq_cst); }
        Sleeper(const Sleeper&) = delete;
        Sleeper& operator=(const Sleeper&) = delete;
        EventCount& event;
    };
};

/// One published record of a rank, on its own cache line. Each rank has two slots: for the current
/// generation and for the next one.
template <class Machine, class Record>
struct alignas(64) BarrierSlot {
    /// The generation to which the record belongs.
    typename Machine::Word generation;
    Record record;
};

/// Queue of work pieces that the ranks of a host share: a rank that has finished a piece takes the next one.
/// Must lie in shared memory that is initially zero.
template <class Machine>
struct alignas(64) SharedWork {
    /// The upper half of each word holds the generation, the lower half the number of pieces that are taken
    /// (first word) or done (second word).
    typename Machine::LongWord taken;
    alignas(64) typename Machine::LongWord done;

    /// Takes the next piece and returns its index. No piece is left if the index is not below the number of
    /// pieces.
    [[nodiscard]] std::uint32_t take(std::uint32_t generation) noexcept { return add(taken, generation); }

    /// Counts one piece as done, and returns how many pieces are done now.
    std::uint32_t finish_one(std::uint32_t generation) noexcept { return add(done, generation) + 1; }

    [[nodiscard]] bool is_done(std::uint32_t generation, std::uint32_t pieces) const noexcept {
        return done.load(std::memory_order_seq_cst) == (std::uint64_t{generation} << 32 | pieces);
    }

  private:
    /// Increments the count, which restarts at 0 in each generation. Returns the previous count.
    [[nodiscard]] static std::uint32_t add(typename Machine::LongWord& word,
                                           std::uint32_t generation) noexcept {
        std::uint64_t seen = word.load(std::memory_order_seq_cst);
        while (true) {
            const bool is_first = static_cast<std::uint32_t>(seen >> 32) != generation;
            const std::uint64_t count = is_first ? 0 : seen & 0xffff'ffffU;
            const std::uint64_t next = (std::uint64_t{generation} << 32) | (count + 1);
            if (word.compare_exchange_strong(seen, next, std::memory_order_seq_cst))
                return static_cast<std::uint32_t>(count);
        }
    }
};

/// One rank's view of its host's barrier. Records must be trivially copyable. Each call of enter_barrier()
/// starts a generation, whose number is the same on all ranks.
template <class Machine, class Record>
class ShmBarrier {
  public:
    using Event = EventCount<Machine>;
    using Slot = BarrierSlot<Machine, Record>;
    using Work = SharedWork<Machine>;

    /// `slots` holds two slots for each rank. The event, the work and the slots lie in shared memory and
    /// are initially zero.
    ShmBarrier(Event& event, Work& work, std::span<Slot> slots, int rank)
        : event_(event),
          work_(work),
          slots_(slots),
          ranks_(slots.size() / 2),
          rank_(static_cast<std::size_t>(rank)) {}

    /// Publishes the record and waits for the records of all ranks. Writes that a rank made before its own
    /// call are visible to this rank after the call.
    ///
    /// Records are double-buffered: those of generation n are valid until this rank enters generation n + 2.
    template <class Idle>
    void enter_barrier(const Record& record, Idle&& idle, SpinPolicy spin_policy) {
        ++generation_;
        Slot& own = slot(rank_);
        own.record = record;
        own.generation.store(generation_, std::memory_order_seq_cst);
        if (all_arrived()) return event_.notify_all();
        event_.wait([this] { return all_arrived(); }, idle, spin_policy);
    }

    [[nodiscard]] const Record& record_of(int rank) const noexcept {
        return slot(static_cast<std::size_t>(rank)).record;
    }

    /// The number of the current generation. It is 0 before the first barrier, and wraps around.
    [[nodiscard]] std::uint32_t number() const noexcept { return generation_; }

    /// Runs do_piece(0) to do_piece(pieces - 1), each on one of the ranks. Returns when all pieces are
    /// done. Call after enter_barrier(), at most once in a generation.
    template <class DoPiece, class Idle>
    void share(std::uint32_t pieces, DoPiece&& do_piece, Idle&& idle, SpinPolicy spin_policy) {
        if (pieces == 0) return;
        while (true) {
            const std::uint32_t piece = work_.take(generation_);
            if (piece >= pieces) break;
            do_piece(piece);
            if (work_.finish_one(generation_) == pieces) return event_.notify_all();
        }
        event_.wait([&] { return work_.is_done(generation_, pieces); }, idle, spin_policy);
    }

  private:
    [[nodiscard]] Slot& slot(std::size_t rank) const noexcept {
        return slots_[2 * rank + (generation_ & 1U)];
    }

    [[nodiscard]] bool all_arrived() const noexcept {
        for (std::size_t rank = 0; rank < ranks_; ++rank) {
            if (slot(rank).generation.load(std::memory_order_seq_cst) != generation_) return false;
        }
        return true;
    }

    Event& event_;
    Work& work_;
    std::span<Slot> slots_;
    std::size_t ranks_;
    std::size_t rank_;
    std::uint32_t generation_ = 0;
};

}  // namespace DPTK_NAMESPACE::detail
