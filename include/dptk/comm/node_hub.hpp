/// One rank's end of the memory that the ranks of its host share: where they meet, where small calls put
/// their elements, and where larger ones pass those that lie in memory of a rank's own.
#pragma once

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "dptk/comm/collective.hpp"
#include "dptk/comm/node_allocations.hpp"
#include "dptk/comm/node_meeting.hpp"
#include "dptk/comm/node_pages.hpp"
#include "dptk/comm/transport_defaults.hpp"
#include "dptk/core/error.hpp"
#include "dptk/core/own_thread.hpp"
#include "dptk/core/text.hpp"

namespace dptk::detail {

/// What a rank leaves at a meeting.
struct NodeNote {
    /// Its call, packed.
    Activity::Call call = {};
    /// The memory that others shall reach.
    NodePlace place = {};
};

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

    /// Zeroed memory that all ranks of the host reach; of this rank's own where the system gives them none,
    /// on all of them. Collective among them. Throws MismatchError where they ask for different sizes.
    [[nodiscard]] std::shared_ptr<void> allocate(std::size_t bytes) {
        const std::size_t stride = round_up(std::max<std::size_t>(bytes, 1), 4096);
        PagesCard& card = *reinterpret_cast<PagesCard*>(at(layout_.card));
        std::shared_ptr<NodePages> pages;
        std::string problem;
        const auto attempt = [&](auto&& get_pages) {
            try {
                pages = get_pages();
            } catch (const BackendError& error) {
                problem = error.what();
            }
        };
        if (rank() == 0) {
            attempt([&] { return NodePages::create(stride * unsigned_size()); });
            card = pages ? pages->card() : PagesCard{};
        }
        meet({.call = {.first = bytes, .second = 0}, .place = {}});
        for (int other = 1; other < size(); ++other) {
            if (note_of(other).call.first == note_of(0).call.first) continue;
            MismatchError error(text("the ranks of this host allocate ", note_of(0).call.first, " and ",
                                     note_of(other).call.first, " bytes"));
            error.mark_agreed();
            throw error;
        }
        if (rank() != 0 && card.bytes != 0) attempt([&] { return NodePages::open(card); });
        // Pages lie near the processor that first writes to them.
        if (pages) std::memset(pages->data() + static_cast<std::size_t>(rank()) * stride, 0, stride);
        meet({.call = {.first = pages ? 1U : 0U, .second = 0}, .place = {}});
        if (rank() == 0 && pages) pages->close();
        for (int other = 0; other < size(); ++other) {
            if (note_of(other).call.first == 0) return allocate_aligned(bytes);
        }
        return NodeAllocations::add(allocations_, card.file, std::move(pages), stride, rank());
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
