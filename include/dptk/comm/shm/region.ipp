#pragma once

#include "dptk/comm/shm/region.hpp"

#include <algorithm>
#include <utility>

#include "dptk/core/detail/thread_kind.hpp"

namespace DPTK_NAMESPACE::detail {

DPTK_INLINE ShmRegion::ShmRegion(std::shared_ptr<ShmPages> pages, std::shared_ptr<ShmAllocations> allocations,
                                 Options options)
    : pages_(std::move(pages)),
      allocations_(std::move(allocations)),
      options_(std::move(options)),
      layout_(options_.size),
      barrier_(*reinterpret_cast<Event*>(at(0)), *reinterpret_cast<Work*>(at(layout_.work)),
               {reinterpret_cast<Slot*>(at(layout_.barrier_slots)), 2 * unsigned_size()}, options_.rank) {}

DPTK_INLINE const std::shared_ptr<ShmAllocations>& ShmRegion::allocations() const noexcept {
    return allocations_;
}

DPTK_INLINE void ShmRegion::enter_barrier(const CallRecord& record) {
    barrier_.enter_barrier(record, options_.idle, spin_policy());
}

DPTK_INLINE std::byte* ShmRegion::next_slot() const noexcept {
    return slot(barrier_.number() + 1, rank());
}

DPTK_INLINE std::byte* ShmRegion::slot_of(int rank) const noexcept {
    return slot(barrier_.number(), rank);
}

DPTK_INLINE std::byte* ShmRegion::next_stage() const noexcept {
    return stage(barrier_.number() + 1, rank());
}

DPTK_INLINE std::byte* ShmRegion::stage_of(int rank) const noexcept {
    return stage(barrier_.number(), rank);
}

DPTK_INLINE std::byte* ShmRegion::next_result() const noexcept {
    return stage(barrier_.number() + 1, size());
}

DPTK_INLINE std::byte* ShmRegion::result() const noexcept {
    return stage(barrier_.number(), size());
}

DPTK_INLINE std::shared_ptr<void> ShmRegion::allocate(std::size_t bytes) {
    const std::size_t stride = round_up(std::max<std::size_t>(bytes, 1), 4096);
    ShmHandle& published = *reinterpret_cast<ShmHandle*>(at(layout_.handle));
    ShmHandle handle;
    std::string problem;
    const std::shared_ptr<ShmPages> pages = ShmPages::share(
        rank() == 0, stride * unsigned_size(),
        [&](const ShmHandle& own) {
            if (rank() == 0) published = own;
            enter_barrier({});
            handle = published;  // copied, because rank 0 may soon write the next handle
            return handle;
        },
        [&](bool success) {
            enter_barrier({.call = {.first = success ? 1U : 0U, .second = 0}});
            for (int other = 0; other < size(); ++other) {
                if (record_of(other).call.first == 0) return false;
            }
            return true;
        },
        // First touch: pages are placed on the NUMA node of the thread that writes to them first.
        [&](ShmPages& some) { some.touch(static_cast<std::size_t>(rank()) * stride, stride); }, problem);
    if (!problem.empty()) warn_once_not_shared(options_.job_rank, problem);
    return pages ? ShmAllocations::add(allocations_, handle.file, pages, stride, rank()) : nullptr;
}

DPTK_INLINE ShmRegion::Layout::Layout(int ranks) noexcept {
    const auto n = static_cast<std::size_t>(ranks);
    work = sizeof(Event);
    handle = work + sizeof(Work);
    barrier_slots = round_up(handle + sizeof(ShmHandle), 64);
    slots = round_up(barrier_slots + 2 * n * sizeof(Slot), 4096);
    stages = slots + 2 * n * slot_bytes;
    end = stages + 2 * (n + 1) * stage_bytes;
}

DPTK_INLINE std::size_t ShmRegion::unsigned_size() const noexcept {
    return static_cast<std::size_t>(options_.size);
}

DPTK_INLINE std::byte* ShmRegion::slot(std::uint32_t generation, int rank) const noexcept {
    const std::size_t half = (generation & 1U) * unsigned_size();
    return at(layout_.slots) + (half + static_cast<std::size_t>(rank)) * slot_bytes;
}

DPTK_INLINE std::byte* ShmRegion::stage(std::uint32_t generation, int rank) const noexcept {
    const std::size_t half = (generation & 1U) * (unsigned_size() + 1);
    return at(layout_.stages) + (half + static_cast<std::size_t>(rank)) * stage_bytes;
}

DPTK_INLINE SpinPolicy ShmRegion::spin_policy() const noexcept {
    if (!options_.has_own_processor) return {.spins = 0, .yields = 16};
    return is_background_thread ? SpinPolicy{.spins = 0, .yields = 4}
                                : SpinPolicy{.spins = 2000, .yields = 32};
}

}  // namespace DPTK_NAMESPACE::detail
