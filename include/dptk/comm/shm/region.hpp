/// One rank's view of the memory that the ranks of its host share: the barrier, the slots for small calls,
/// and the staging buffers for larger calls on private memory.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "dptk/comm/shm/allocations.hpp"
#include "dptk/comm/shm/barrier.hpp"
#include "dptk/comm/shm/pages.hpp"
#include "dptk/control/health/call_tracker.hpp"
#include "dptk/core/config.hpp"
#include "dptk/core/log.hpp"

namespace DPTK_NAMESPACE::detail {

/// The record that a rank publishes at a barrier.
struct CallRecord {
    /// The rank's call, packed.
    CallTracker::Call call = {};
    std::uint32_t element_size = 0;
    /// A hash of the call with its counts, for all_gather_uneven; otherwise 0.
    std::uint32_t counts = 0;
    /// The memory of this rank that the other ranks access.
    ShmAddress address = {};
    /// This rank's elements in a call of up to 16 bytes, which then touches no other cache line than those of
    /// the records. Aligned to 16 bytes within a slot.
    std::array<std::byte, 16> elements = {};
};

/// Logs why memory is not shared. Only the first call in a process logs.
inline void warn_once_not_shared(int rank, const std::string& problem) {
    static std::atomic<bool> is_logged = false;
    if (is_logged.exchange(true)) return;
    log(LogLevel::warning, rank, "the ranks of a host cannot share memory: " + problem);
}

class ShmRegion {
  public:
    using Event = EventCount<SharedWords>;
    using Work = SharedWork<SharedWords>;
    using Slot = BarrierSlot<SharedWords, CallRecord>;
    static_assert(sizeof(Slot) == 64, "a record is one cache line");

    /// The maximum size of one rank's elements in a small call.
    static constexpr std::size_t slot_bytes = 16384;
    /// Bytes of one rank's staging buffer.
    static constexpr std::size_t stage_bytes = std::size_t{4} << 20;

    struct Options {
        /// This rank's index among the ranks of its host, and the number of these ranks.
        int rank = 0;
        int size = 1;
        /// The rank in the job, for log messages.
        int job_rank = 0;
        /// Whether each rank of this host has a processor of its own.
        bool has_own_processor = true;
        /// Called while waiting. Throws if the job has failed; returns true to keep polling without sleep.
        std::function<bool()> idle;
    };

    /// The number of bytes of pages that a region needs if the host has `ranks` ranks.
    [[nodiscard]] static std::size_t bytes_for(int ranks) noexcept { return Layout(ranks).end; }

    ShmRegion(std::shared_ptr<ShmPages> pages, std::shared_ptr<ShmAllocations> allocations, Options options);

    [[nodiscard]] int rank() const noexcept { return options_.rank; }
    [[nodiscard]] int size() const noexcept { return options_.size; }
    [[nodiscard]] bool has_own_processor() const noexcept { return options_.has_own_processor; }
    [[nodiscard]] const std::shared_ptr<ShmAllocations>& allocations() const noexcept;

    void enter_barrier(const CallRecord& record);

    /// Waits until no rank accesses another rank's memory anymore.
    void leave_barrier() { enter_barrier({}); }

    /// The record that `rank` published at the last barrier.
    [[nodiscard]] const CallRecord& record_of(int rank) const noexcept { return barrier_.record_of(rank); }

    /// Runs do_piece(0) to do_piece(pieces - 1), each on the rank that takes the piece first. Returns when
    /// all pieces are done. Call after enter_barrier(), at most once before the next barrier.
    template <class DoPiece>
    void share(std::size_t pieces, DoPiece&& do_piece) {
        barrier_.share(static_cast<std::uint32_t>(pieces), do_piece, options_.idle, spin_policy());
    }

    /// The slots for a rank's elements in a small call. Write to next_slot() before a barrier; read
    /// slot_of() after it.
    [[nodiscard]] std::byte* next_slot() const noexcept;
    [[nodiscard]] std::byte* slot_of(int rank) const noexcept;

    /// The staging buffers. Write to next_stage() before a barrier; read stage_of() after it. They are
    /// double-buffered, like the records of the barrier.
    [[nodiscard]] std::byte* next_stage() const noexcept;
    [[nodiscard]] std::byte* stage_of(int rank) const noexcept;

    /// The buffer for the result that all ranks write together. Write to next_result() before a barrier;
    /// read result() after it.
    [[nodiscard]] std::byte* next_result() const noexcept;
    [[nodiscard]] std::byte* result() const noexcept;

    /// Allocates shared memory for each rank of the host. Returns null on all of these ranks if one of them
    /// cannot create or open the memory. Collective among these ranks, which must all have just left a
    /// barrier.
    [[nodiscard]] std::shared_ptr<void> allocate(std::size_t bytes);

  private:
    /// The offsets of the region's parts in the pages.
    struct Layout {
        explicit Layout(int ranks) noexcept;
        std::size_t work;
        std::size_t handle;
        std::size_t barrier_slots;
        std::size_t slots;
        std::size_t stages;
        std::size_t end;
    };

    [[nodiscard]] static constexpr std::size_t round_up(std::size_t bytes, std::size_t to) noexcept {
        return (bytes + to - 1) / to * to;
    }

    [[nodiscard]] std::size_t unsigned_size() const noexcept;
    [[nodiscard]] std::byte* at(std::size_t offset) const noexcept { return pages_->data() + offset; }

    [[nodiscard]] std::byte* slot(std::uint32_t generation, int rank) const noexcept;
    [[nodiscard]] std::byte* stage(std::uint32_t generation, int rank) const noexcept;

    /// A background thread does not spin, because it would compete with the thread that computes.
    [[nodiscard]] SpinPolicy spin_policy() const noexcept;

    std::shared_ptr<ShmPages> pages_;
    std::shared_ptr<ShmAllocations> allocations_;
    Options options_;
    Layout layout_;
    ShmBarrier<SharedWords, CallRecord> barrier_;
};

}  // namespace DPTK_NAMESPACE::detail

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/comm/shm/region.ipp"
#endif
