/// One rank's end of the memory that the ranks of its host share: where they meet, where small calls put
/// their elements, and where larger ones pass those that lie in memory of a rank's own.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "dptk/comm/collective.hpp"
#include "dptk/comm/node_allocations.hpp"
#include "dptk/comm/node_meeting.hpp"
#include "dptk/comm/node_pages.hpp"
#include "dptk/core/log.hpp"
#include "dptk/core/own_thread.hpp"

namespace dptk::detail {

/// What a rank leaves at a meeting.
struct NodeNote {
    /// Its call, packed.
    Activity::Call call = {};
    /// Of the call's elements.
    std::size_t element_size = 0;
    /// The memory that others shall reach.
    NodePlace place = {};
};

/// Why pages are not shared: of a process, the first time.
inline void say_once_unshared(int rank, const std::string& problem) {
    static std::atomic<bool> said = false;
    if (said.exchange(true)) return;
    log(LogLevel::warning, rank, "the ranks of a host cannot share memory: " + problem);
}

class NodeHub {
  public:
    using Bell = NodeBell<SharedWords>;
    using Work = NodeWork<SharedWords>;
    using Seat = NodeSeat<SharedWords, NodeNote>;

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

    /// Bytes of the pages through which so many ranks meet.
    [[nodiscard]] static std::size_t bytes_for(int ranks) noexcept { return Layout(ranks).end; }

    NodeHub(std::shared_ptr<NodePages> pages, std::shared_ptr<NodeAllocations> allocations, Options options)
        : pages_(std::move(pages)),
          allocations_(std::move(allocations)),
          options_(std::move(options)),
          layout_(options_.size),
          meeting_(*reinterpret_cast<Bell*>(at(0)), *reinterpret_cast<Work*>(at(layout_.work)),
                   {reinterpret_cast<Seat*>(at(layout_.seats)), 2 * unsigned_size()}, options_.rank) {}

    [[nodiscard]] int rank() const noexcept { return options_.rank; }
    [[nodiscard]] int size() const noexcept { return options_.size; }
    [[nodiscard]] bool has_own_processor() const noexcept { return options_.has_own_processor; }
    [[nodiscard]] const std::shared_ptr<NodeAllocations>& allocations() const noexcept {
        return allocations_;
    }

    void meet(const NodeNote& note) { meeting_.meet(note, options_.idle, patience()); }

    /// All have done with each other's memory.
    void part() { meet({}); }

    /// Of the meeting that was last.
    [[nodiscard]] const NodeNote& note_of(int rank) const noexcept { return meeting_.note_of(rank); }

    /// Does the pieces of work of this meeting together with the other ranks, each on whichever comes first.
    template <class DoPiece>
    void share(std::size_t pieces, DoPiece&& do_piece) {
        meeting_.share(static_cast<std::uint32_t>(pieces), do_piece, options_.idle, patience());
    }

    /// A rank's elements for the next meeting, where they are small; after it, of the last one.
    [[nodiscard]] std::byte* next_slot() const noexcept { return slot(meeting_.number() + 1, rank()); }
    [[nodiscard]] std::byte* slot_of(int rank) const noexcept { return slot(meeting_.number(), rank); }

    /// The same for those on their way. A rank that has met the others twice since finds it free again.
    [[nodiscard]] std::byte* next_stage() const noexcept { return stage(meeting_.number() + 1, rank()); }
    [[nodiscard]] std::byte* stage_of(int rank) const noexcept { return stage(meeting_.number(), rank); }

    /// Where all put together what comes of them, to be read after the next meeting.
    [[nodiscard]] std::byte* next_result() const noexcept { return stage(meeting_.number() + 1, size()); }
    [[nodiscard]] std::byte* result() const noexcept { return stage(meeting_.number(), size()); }

    /// Memory for each rank that all ranks of the host reach, and have just met to ask for; null where the
    /// system gives them none, on all of them. Collective among them.
    [[nodiscard]] std::shared_ptr<void> allocate(std::size_t bytes) {
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

  private:
    /// What lies where in the pages.
    struct Layout {
        explicit Layout(int ranks) noexcept {
            const auto n = static_cast<std::size_t>(ranks);
            work = sizeof(Bell);
            card = work + sizeof(Work);
            seats = round_up(card + sizeof(PagesCard), 64);
            slots = round_up(seats + 2 * n * sizeof(Seat), 4096);
            stages = slots + 2 * n * slot_bytes;
            end = stages + 2 * (n + 1) * stage_bytes;
        }
        std::size_t work;
        std::size_t card;
        std::size_t seats;
        std::size_t slots;
        std::size_t stages;
        std::size_t end;
    };

    [[nodiscard]] static constexpr std::size_t round_up(std::size_t bytes, std::size_t to) noexcept {
        return (bytes + to - 1) / to * to;
    }

    [[nodiscard]] std::size_t unsigned_size() const noexcept {
        return static_cast<std::size_t>(options_.size);
    }
    [[nodiscard]] std::byte* at(std::size_t offset) const noexcept { return pages_->data() + offset; }

    [[nodiscard]] std::byte* slot(std::uint32_t meeting, int rank) const noexcept {
        const std::size_t half = (meeting & 1U) * unsigned_size();
        return at(layout_.slots) + (half + static_cast<std::size_t>(rank)) * slot_bytes;
    }
    [[nodiscard]] std::byte* stage(std::uint32_t meeting, int rank) const noexcept {
        const std::size_t half = (meeting & 1U) * (unsigned_size() + 1);
        return at(layout_.stages) + (half + static_cast<std::size_t>(rank)) * stage_bytes;
    }

    /// A thread in the background does not keep a processor from the one that computes.
    [[nodiscard]] Patience patience() const noexcept {
        if (!options_.has_own_processor) return {.spins = 0, .yields = 16};
        return is_own_thread ? Patience{.spins = 0, .yields = 4} : Patience{.spins = 2000, .yields = 32};
    }

    std::shared_ptr<NodePages> pages_;
    std::shared_ptr<NodeAllocations> allocations_;
    Options options_;
    Layout layout_;
    NodeMeeting<SharedWords, NodeNote> meeting_;
};

}  // namespace dptk::detail
