/// How the ranks of one host meet in the memory that they share: each leaves a note, and goes on when all
/// notes are there. Who waits long sleeps. tests/threads/node_meeting.cpp tries all orders of its steps.
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
struct Patience {
    /// Looks that keep the processor: only where every rank has one of its own.
    int spins = 0;
    /// Looks that offer it to others.
    int yields = 4;
};

/// Sleeping and waking. Lies in shared memory, zero at first.
template <class Machine>
struct alignas(64) NodeBell {
    typename Machine::Word rings;
    typename Machine::Word sleepers;

    /// After a store, in the one order of all sequentially consistent ones, that others may wait for.
    void ring() noexcept {
        if (sleepers.load(std::memory_order_seq_cst) == 0) return;
        rings.fetch_add(1, std::memory_order_seq_cst);
        Machine::wake_all(rings);
    }

    /// Returns when is_ready(), whose loads are sequentially consistent. Calls idle() now and then: it may
    /// throw, or return true where looking must go on without sleep.
    template <class Ready, class Idle>
    void await(Ready&& is_ready, Idle&& idle, Patience patience) {
        for (int look = 0; look < patience.spins; ++look) {
            if (is_ready()) return;
            Machine::pause();
        }
        for (int look = 0; look < patience.yields; ++look) {
            if (is_ready()) return;
            Machine::yield();
        }
        const Sleeper counted(*this);
        while (true) {
            const std::uint32_t heard = rings.load(std::memory_order_seq_cst);
            if (is_ready()) return;
            if (idle()) {
                Machine::yield();
            } else {
                Machine::sleep_while(rings, heard, longest_sleep);
            }
        }
    }

  private:
    /// A job that has failed rings no bell.
    static constexpr std::chrono::milliseconds longest_sleep{5};

    struct Sleeper {
        explicit Sleeper(NodeBell& bell_) : bell(bell_) {
            bell.sleepers.fetch_add(1, std::memory_order_seq_cst);
        }
        ~Sleeper() { bell.sleepers.fetch_sub(1, std::memory_order_seq_cst); }
        Sleeper(const Sleeper&) = delete;
        Sleeper& operator=(const Sleeper&) = delete;
        NodeBell& bell;
    };
};

/// Where a rank leaves its notes: one line of the cache for the meeting under way, and one for the next.
template <class Machine, class Note>
struct alignas(64) NodeSeat {
    /// The number of the meeting that the note is for.
    typename Machine::Word meeting;
    Note note;
};

/// Work in pieces that whoever has a processor takes. Lies in shared memory, zero at first.
template <class Machine>
struct alignas(64) NodeWork {
    /// The meeting in the upper half; in the lower one how many pieces are taken, or done.
    typename Machine::LongWord taken;
    alignas(64) typename Machine::LongWord done;

    /// The next piece of that meeting's work.
    [[nodiscard]] std::uint32_t take(std::uint32_t meeting) noexcept { return add(taken, meeting); }

    /// Returns how many are done now.
    std::uint32_t finish_one(std::uint32_t meeting) noexcept { return add(done, meeting) + 1; }

    [[nodiscard]] bool is_done(std::uint32_t meeting, std::uint32_t pieces) const noexcept {
        return done.load(std::memory_order_seq_cst) == (std::uint64_t{meeting} << 32 | pieces);
    }

  private:
    /// Counts from 0 in each meeting; returns the count before.
    [[nodiscard]] static std::uint32_t add(typename Machine::LongWord& word, std::uint32_t meeting) noexcept {
        std::uint64_t seen = word.load(std::memory_order_seq_cst);
        while (true) {
            const bool is_first = static_cast<std::uint32_t>(seen >> 32) != meeting;
            const std::uint64_t count = is_first ? 0 : seen & 0xffff'ffffU;
            const std::uint64_t next = (std::uint64_t{meeting} << 32) | (count + 1);
            if (word.compare_exchange_strong(seen, next, std::memory_order_seq_cst))
                return static_cast<std::uint32_t>(count);
        }
    }
};

/// One rank's view of its host's meetings. Trivially copyable notes; the n-th meeting of one rank is the n-th
/// of all.
template <class Machine, class Note>
class NodeMeeting {
  public:
    using Bell = NodeBell<Machine>;
    using Seat = NodeSeat<Machine, Note>;
    using Work = NodeWork<Machine>;

    /// `seats`: two for each rank, in shared memory, zero at first, as the bell and the work.
    NodeMeeting(Bell& bell, Work& work, std::span<Seat> seats, int rank)
        : bell_(bell),
          work_(work),
          seats_(seats),
          ranks_(seats.size() / 2),
          rank_(static_cast<std::size_t>(rank)) {}

    /// Leaves the note, and waits for all others'. What ranks wrote before they came can then be read here.
    ///
    /// The notes can be read until this rank comes to the meeting after the next: by then nobody comes to
    /// that one who has not left this one.
    template <class Idle>
    void meet(const Note& note, Idle&& idle, Patience patience) {
        ++meeting_;
        Seat& own = seat(rank_);
        own.note = note;
        own.meeting.store(meeting_, std::memory_order_seq_cst);
        if (all_are_here()) return bell_.ring();
        bell_.await([this] { return all_are_here(); }, idle, patience);
    }

    [[nodiscard]] const Note& note_of(int rank) const noexcept {
        return seat(static_cast<std::size_t>(rank)).note;
    }

    /// The number of the meeting that was last, from 1 on; it wraps around.
    [[nodiscard]] std::uint32_t number() const noexcept { return meeting_; }

    /// After a meeting: do_piece(0) to do_piece(pieces - 1), each on one of the ranks. Returns when all are
    /// done. At most once in a meeting.
    template <class DoPiece, class Idle>
    void share(std::uint32_t pieces, DoPiece&& do_piece, Idle&& idle, Patience patience) {
        if (pieces == 0) return;
        while (true) {
            const std::uint32_t piece = work_.take(meeting_);
            if (piece >= pieces) break;
            do_piece(piece);
            if (work_.finish_one(meeting_) == pieces) return bell_.ring();
        }
        bell_.await([&] { return work_.is_done(meeting_, pieces); }, idle, patience);
    }

  private:
    [[nodiscard]] Seat& seat(std::size_t rank) const noexcept { return seats_[2 * rank + (meeting_ & 1U)]; }

    [[nodiscard]] bool all_are_here() const noexcept {
        for (std::size_t rank = 0; rank < ranks_; ++rank) {
            if (seat(rank).meeting.load(std::memory_order_seq_cst) != meeting_) return false;
        }
        return true;
    }

    Bell& bell_;
    Work& work_;
    std::span<Seat> seats_;
    std::size_t ranks_;
    std::size_t rank_;
    std::uint32_t meeting_ = 0;
};

}  // namespace DPTK_NAMESPACE::detail
