#pragma once

#include "dptk/comm/shm/hub.hpp"

#include <algorithm>
#include <utility>

#include "dptk/core/detail/own_thread.hpp"

namespace DPTK_NAMESPACE::detail {

DPTK_INLINE NodeHub::NodeHub(std::shared_ptr<NodePages> pages, std::shared_ptr<NodeAllocations> allocations,
                             Options options)
    : pages_(std::move(pages)),
      allocations_(std::move(allocations)),
      options_(std::move(options)),
      layout_(options_.size),
      meeting_(*reinterpret_cast<Bell*>(at(0)), *reinterpret_cast<Work*>(at(layout_.work)),
               {reinterpret_cast<Seat*>(at(layout_.seats)), 2 * unsigned_size()}, options_.rank) {}

DPTK_INLINE const std::shared_ptr<NodeAllocations>& NodeHub::allocations() const noexcept {
    return allocations_;
}

DPTK_INLINE void NodeHub::meet(const NodeNote& note) {
    meeting_.meet(note, options_.idle, patience());
}

DPTK_INLINE std::byte* NodeHub::next_slot() const noexcept {
    return slot(meeting_.number() + 1, rank());
}

DPTK_INLINE std::byte* NodeHub::slot_of(int rank) const noexcept {
    return slot(meeting_.number(), rank);
}

DPTK_INLINE std::byte* NodeHub::next_stage() const noexcept {
    return stage(meeting_.number() + 1, rank());
}

DPTK_INLINE std::byte* NodeHub::stage_of(int rank) const noexcept {
    return stage(meeting_.number(), rank);
}

DPTK_INLINE std::byte* NodeHub::next_result() const noexcept {
    return stage(meeting_.number() + 1, size());
}

DPTK_INLINE std::byte* NodeHub::result() const noexcept {
    return stage(meeting_.number(), size());
}

DPTK_INLINE std::shared_ptr<void> NodeHub::allocate(std::size_t bytes) {
    const std::size_t stride = round_up(std::max<std::size_t>(bytes, 1), 4096);
    PagesCard& board = *reinterpret_cast<PagesCard*>(at(layout_.card));
    PagesCard card;
    std::string problem;
    const std::shared_ptr<NodePages> pages = NodePages::share(
        rank() == 0, stride * unsigned_size(),
        [&](const PagesCard& own) {
            if (rank() == 0) board = own;
            meet({});
            card = board;  // rank 0 may soon write the next one there
            return card;
        },
        [&](bool success) {
            meet({.call = {.first = success ? 1U : 0U, .second = 0}});
            for (int other = 0; other < size(); ++other) {
                if (note_of(other).call.first == 0) return false;
            }
            return true;
        },
        // Pages lie near the processor that first writes to them.
        [&](NodePages& some) { some.touch(static_cast<std::size_t>(rank()) * stride, stride); }, problem);
    if (!problem.empty()) say_once_unshared(options_.job_rank, problem);
    return pages ? NodeAllocations::add(allocations_, card.file, pages, stride, rank()) : nullptr;
}

DPTK_INLINE NodeHub::Layout::Layout(int ranks) noexcept {
    const auto n = static_cast<std::size_t>(ranks);
    work = sizeof(Bell);
    card = work + sizeof(Work);
    seats = round_up(card + sizeof(PagesCard), 64);
    slots = round_up(seats + 2 * n * sizeof(Seat), 4096);
    stages = slots + 2 * n * slot_bytes;
    end = stages + 2 * (n + 1) * stage_bytes;
}

DPTK_INLINE std::size_t NodeHub::unsigned_size() const noexcept {
    return static_cast<std::size_t>(options_.size);
}

DPTK_INLINE std::byte* NodeHub::slot(std::uint32_t meeting, int rank) const noexcept {
    const std::size_t half = (meeting & 1U) * unsigned_size();
    return at(layout_.slots) + (half + static_cast<std::size_t>(rank)) * slot_bytes;
}

DPTK_INLINE std::byte* NodeHub::stage(std::uint32_t meeting, int rank) const noexcept {
    const std::size_t half = (meeting & 1U) * (unsigned_size() + 1);
    return at(layout_.stages) + (half + static_cast<std::size_t>(rank)) * stage_bytes;
}

DPTK_INLINE Patience NodeHub::patience() const noexcept {
    if (!options_.has_own_processor) return {.spins = 0, .yields = 16};
    return is_own_thread ? Patience{.spins = 0, .yields = 4} : Patience{.spins = 2000, .yields = 32};
}

}  // namespace DPTK_NAMESPACE::detail
