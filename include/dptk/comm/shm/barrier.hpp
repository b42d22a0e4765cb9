/// How the ranks of one host enter_barrier in the memory that they share: each leaves a record, and goes on
/// when all notes are there. Who waits long sleeps. tests/threads/shm_barrier.cpp tries all orders of its
/// steps.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>

#include "dptk/comm/shm/shared_words.hpp"
#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE::detail {

/// How long a rank looks before it sleeps.
struct SpinPolicy {
    /// Looks that keep the processor: only where every rank has one of its own.
    int spins = 0;
    /// Looks that offer it to others.
    int yields = 4;
};

/// Sleeping and waking. Lies in shared memory, zero at first.
template <class Machine>
struct alignas(64) EventCount {
    typename Machine::Word events;
    typename Machine::Word sleepers;

    /// After a store, in the one order of all sequentially consistent ones, that others may wait for.
    void notify_all() noexcept {
        if (sleepers.load(std::memory_order_seq_cst) == 0) return;
        events.fetch_add(1, std::memory_order_seq_cst);
        Machine::wake_all(events);
    }

    /// Returns when is_ready(), whose loads are sequentially consistent. Calls idle() now and then: it may
    /// throw, or return true where looking must go on without sleep.
    template <class Ready, class Idle>
    void wait(Ready&& is_ready, Idle&& idle, SpinPolicy spin_policy) {
        for (int look = 0; look < spin_policy.spins; ++look) {
            if (is_ready()) return;
            Machine::pause();
        }
        for (int look = 0; look < spin_policy.yields; ++look) {
            if (is_ready()) return;
            Machine::yield();
        }
        const Sleeper counted(*this);
        while (true) {
            const std::uint32_t seen = events.load(std::memory_order_seq_cst);
            if (is_ready()) return;
            if (idle()) {
                Machine::yield();
            } else {
                Machine::sleep_while(events, seen, longest_sleep);
            }
        }
    }

  private:
    /// A job that has failed events no event.
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

/// Where a rank leaves its notes: one line of the cache for the generation under way, and one for the next.
template <class Machine, class Record>
struct alignas(64) BarrierSlot {
    /// The number of the generation that the record is for.
    typename Machine::Word generation;
    Record record;
};

/// Work in pieces that whoever has a processor takes. Lies in shared memory, zero at first.
template <class Machine>
struct alignas(64) SharedWork {
    /// The generation in the upper half; in the lower one how many pieces are taken, or done.
    typename Machine::LongWord taken;
    alignas(64) typename Machine::LongWord done;

    /// The next piece of that generation's work.
    [[nodiscard]] std::uint32_t take(std::uint32_t generation) noexcept { return add(taken, generation); }

    /// Returns how many are done now.
    std::uint32_t finish_one(std::uint32_t generation) noexcept { return add(done, generation) + 1; }

    [[nodiscard]] bool is_done(std::uint32_t generation, std::uint32_t pieces) const noexcept {
        return done.load(std::memory_order_seq_cst) == (std::uint64_t{generation} << 32 | pieces);
    }

  private:
    /// Counts from 0 in each generation; returns the count before.
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

/// One rank's view of its host's barriers. Trivially copyable notes; the n-th generation of one rank is the
/// n-th of all.
template <class Machine, class Record>
class ShmBarrier {
  public:
    using Event = EventCount<Machine>;
    using Slot = BarrierSlot<Machine, Record>;
    using Work = SharedWork<Machine>;

    /// `slots`: two for each rank, in shared memory, zero at first, as the event and the work.
    ShmBarrier(Event& event, Work& work, std::span<Slot> slots, int rank)
        : event_(event),
          work_(work),
          slots_(slots),
          ranks_(slots.size() / 2),
          rank_(static_cast<std::size_t>(rank)) {}

    /// Leaves the record, and waits for all others'. What ranks wrote before they came can then be read here.
    ///
    /// The notes can be read until this rank comes to the generation after the next: by then nobody comes to
    /// that one who has not left this one.
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

    /// The number of the generation that was last, from 1 on; it wraps around.
    [[nodiscard]] std::uint32_t number() const noexcept { return generation_; }

    /// After a generation: do_piece(0) to do_piece(pieces - 1), each on one of the ranks. Returns when all
    /// are done. At most once in a generation.
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
