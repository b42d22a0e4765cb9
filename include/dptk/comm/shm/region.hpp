/// One rank's end of the memory that the ranks of its host share: where they enter_barrier, where small calls
/// put their elements, and where larger ones pass those that lie in memory of a rank's own.
#pragma once

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

/// What a rank leaves at a generation.
struct CallRecord {
    /// Its call, packed.
    CallTracker::Call call = {};
    /// Of the call's elements.
    std::size_t element_size = 0;
    /// The memory that others shall reach.
    ShmAddress place = {};
};

/// Why pages are not shared: of a process, the first time.
inline void say_once_unshared(int rank, const std::string& problem) {
    static std::atomic<bool> said = false;
    if (said.exchange(true)) return;
    log(LogLevel::warning, rank, "the ranks of a host cannot share memory: " + problem);
}

class ShmRegion {
  public:
    using Event = EventCount<SharedWords>;
    using Work = SharedWork<SharedWords>;
    using Slot = BarrierSlot<SharedWords, CallRecord>;

    /// Of one rank's elements in a small call.
    static constexpr std::size_t slot_bytes = 16384;
    /// The most of one rank's elements that are on their way through shared memory at a time.
    static constexpr std::size_t stage_bytes = std::size_t{4} << 20;

    struct Options {
        /// Among the ranks of this host.
        int rank = 0;
        int size = 1;
        /// For messages.
        int job_rank = 0;
        /// Whether each of them has a processor of its own.
        bool has_own_processor = true;
        /// Called while waiting: throws where the job has failed; true where looking must go on.
        std::function<bool()> idle;
    };

    /// Bytes of the pages through which so many ranks enter_barrier.
    [[nodiscard]] static std::size_t bytes_for(int ranks) noexcept { return Layout(ranks).end; }

    ShmRegion(std::shared_ptr<ShmPages> pages, std::shared_ptr<ShmAllocations> allocations, Options options);

    [[nodiscard]] int rank() const noexcept { return options_.rank; }
    [[nodiscard]] int size() const noexcept { return options_.size; }
    [[nodiscard]] bool has_own_processor() const noexcept { return options_.has_own_processor; }
    [[nodiscard]] const std::shared_ptr<ShmAllocations>& allocations() const noexcept;

    void enter_barrier(const CallRecord& record);

    /// All have done with each other's memory.
    void leave_barrier() { enter_barrier({}); }

    /// Of the generation that was last.
    [[nodiscard]] const CallRecord& record_of(int rank) const noexcept { return barrier_.record_of(rank); }

    /// Does the pieces of work of this generation together with the other ranks, each on whichever comes
    /// first.
    template <class DoPiece>
    void share(std::size_t pieces, DoPiece&& do_piece) {
        barrier_.share(static_cast<std::uint32_t>(pieces), do_piece, options_.idle, spin_policy());
    }

    /// A rank's elements for the next generation, where they are small; after it, of the last one.
    [[nodiscard]] std::byte* next_slot() const noexcept;
    [[nodiscard]] std::byte* slot_of(int rank) const noexcept;

    /// The same for those on their way. A rank that has met the others twice since finds it free again.
    [[nodiscard]] std::byte* next_stage() const noexcept;
    [[nodiscard]] std::byte* stage_of(int rank) const noexcept;

    /// Where all put together what comes of them, to be read after the next generation.
    [[nodiscard]] std::byte* next_result() const noexcept;
    [[nodiscard]] std::byte* result() const noexcept;

    /// Memory for each rank that all ranks of the host reach, and have just met to ask for; null where the
    /// system gives them none, on all of them. Collective among them.
    [[nodiscard]] std::shared_ptr<void> allocate(std::size_t bytes);

  private:
    /// What lies where in the pages.
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

    /// A thread in the background does not keep a processor from the one that computes.
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
