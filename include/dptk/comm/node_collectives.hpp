/// The collectives of ranks on one host, in memory that they share: in place where all ranks' elements lie
/// there, and piece by piece through it where they do not.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "dptk/comm/algorithms/exchange.hpp"
#include "dptk/comm/collective.hpp"
#include "dptk/comm/local_reduce.hpp"
#include "dptk/comm/node_hub.hpp"
#include "dptk/core/buffer.hpp"
#include "dptk/core/error.hpp"
#include "dptk/core/text.hpp"

namespace dptk::detail {

class NodeCollectives {
  public:
    /// `between` sums a slice with those of other hosts, whose ranks it takes along; null where there are
    /// none. `slices`: how many of the host's ranks, the first ones, do that. `world`: by how many an average
    /// divides.
    struct Hosts {
        std::function<void(const Buffer&, const Reduction&)> between;
        int slices = 1;
        int world = 1;
    };

    NodeCollectives(std::unique_ptr<NodeHub> hub, Hosts hosts)
        : hub_(std::move(hub)),
          hosts_(std::move(hosts)),
          sources_(unsigned_size()),
          results_(unsigned_size()) {}

    [[nodiscard]] NodeHub& hub() noexcept { return *hub_; }

    /// Whether the call can be carried out here.
    [[nodiscard]] bool serves(const Collective& call) const noexcept {
        const bool alone = hosts_.between == nullptr;
        if (call.shared_shape().on_device() ||
            call.shared_shape().element_size() * unsigned_size() > NodeHub::stage_bytes)
            return false;
        switch (call.verb) {
            case Verb::all_reduce:
                // Other hosts' ranks may lie between this host's, and a product is rounded on each.
                return alone ||
                       (call.reduction.user == nullptr &&
                        (sums(call.reduction) || !needs_wide_accumulation(call.input.dtype, call.reduction)));
            case Verb::reduce_scatter:
            case Verb::all_gather:
            case Verb::broadcast:
            case Verb::barrier: return alone;
            default: return false;
        }
    }

    void run(const Collective& call) {
        switch (call.verb) {
            case Verb::all_reduce: return all_reduce(call);
            case Verb::reduce_scatter: return reduce_scatter(call);
            case Verb::all_gather: return all_gather(call);
            case Verb::broadcast: return broadcast(call);
            default: return meet(call, {});
        }
    }

  private:
    using Parts = NodeAllocations::Parts;

    [[nodiscard]] static bool sums(const Reduction& reduction) noexcept {
        return reduction.user == nullptr && (reduction.op == ReduceOp::sum || reduction.op == ReduceOp::avg);
    }

    [[nodiscard]] std::size_t unsigned_size() const noexcept {
        return static_cast<std::size_t>(hub_->size());
    }

    /// A range of elements.
    struct Range {
        std::size_t first = 0;
        std::size_t count = 0;
    };

    /// The slice of a rank, the other ranks' being as large. They begin where lines of the cache do, if the
    /// elements do.
    [[nodiscard]] static Range slice(std::size_t count, int slices, int rank) noexcept {
        constexpr std::size_t granule = 64;
        const std::size_t granules = (count + granule - 1) / granule;
        const auto n = static_cast<std::size_t>(slices);
        const auto begin = [&](std::size_t i) {
            return std::min(count, (granules / n * i + std::min(granules % n, i)) * granule);
        };
        const auto own = static_cast<std::size_t>(rank);
        return own < n ? Range{begin(own), begin(own + 1) - begin(own)} : Range{};
    }

    /// Comes together with the other ranks of the host. Throws MismatchError, on all of them, where one makes
    /// another call.
    void meet(const Collective& call, const NodePlace& place) {
        const Activity::Call own = PackedCall(call).words();
        hub_->meet({own, place});
        for (int other = 1; other < hub_->size(); ++other) {
            const Activity::Call theirs = hub_->note_of(other).call;
            const Activity::Call first = hub_->note_of(0).call;
            if (theirs.first == first.first && theirs.second == first.second) continue;
            MismatchError error(text("the ranks of this host make different calls: rank ", other, " of ",
                                     hub_->size(), " there ", describe_packed(theirs), ", rank 0 ",
                                     describe_packed(first)));
            if (hosts_.between == nullptr) error.mark_agreed();
            throw error;
        }
    }

    /// Whether all ranks' notes name one allocation; whose, then. Where they do not, no rank's memory is
    /// used.
    [[nodiscard]] Parts common_memory() const {
        const std::uint64_t allocation = hub_->note_of(0).place.allocation;
        for (int other = 0; other < hub_->size(); ++other) {
            if (hub_->note_of(other).place.allocation != allocation) return {};
        }
        return allocation == 0 ? Parts{} : hub_->allocations()->parts(allocation);
    }

    [[nodiscard]] bool some_memory_is_shared() const {
        for (int other = 0; other < hub_->size(); ++other) {
            if (hub_->note_of(other).place.allocation != 0) return true;
        }
        return false;
    }

    [[nodiscard]] NodePlace place_of(const Buffer& buffer) const {
        return hub_->allocations()->find(buffer.data, buffer.bytes());
    }

    /// Not by memcpy, which passes the caches by where much is copied: the other rank reads it at once.
    static void copy(void* to, const void* from, std::size_t bytes) noexcept {
        const std::size_t words = bytes / sizeof(float);
        const std::size_t rest = bytes % sizeof(float);
        if (words != 0) sum_vectors<float>({{&from, 1}, {&to, 1}, words});
        if (rest != 0)
            std::memcpy(static_cast<std::byte*>(to) + bytes - rest,
                        static_cast<const std::byte*>(from) + bytes - rest, rest);
    }

    // all_reduce

    void all_reduce(const Collective& call) {
        algorithms::place(call.output, call.input);
        const Buffer& data = call.output;
        const bool fits = hosts_.between == nullptr && data.bytes() <= NodeHub::slot_bytes &&
                          data.bytes() * unsigned_size() <= 4 * NodeHub::slot_bytes;
        const auto leave_copy = [&] { copy(hub_->next_slot(), data.data, data.bytes()); };
        // One meeting does where all read all. In place it takes two, and less copying.
        constexpr std::size_t tiny = 2048;
        if (fits && (data.bytes() <= tiny || !hub_->has_own_processor())) {
            leave_copy();
            meet(call, {});
            return reduce_copies(data, call.reduction);
        }
        const NodePlace place = place_of(data);
        if (fits && place.allocation == 0) leave_copy();
        meet(call, place);
        if (const Parts parts = common_memory(); parts.first != nullptr)
            return all_reduce_in_place(parts, data, call.reduction);
        if (!fits) return all_reduce_through(data, call.reduction);
        if (some_memory_is_shared()) {  // by ranks that have left no copy
            leave_copy();
            hub_->meet({});
        }
        reduce_copies(data, call.reduction);
    }

    /// Each rank reduces all.
    void reduce_copies(const Buffer& data, const Reduction& reduction) {
        for (int rank = 0; rank < hub_->size(); ++rank)
            sources_[static_cast<std::size_t>(rank)] = hub_->slot_of(rank);
        reduce_together({sources_, {&data.data, 1}, data.count, static_cast<double>(hosts_.world)}, data,
                        data.dtype, reduction);
    }

    /// Each rank reduces its slice, and writes it to all.
    void all_reduce_in_place(const Parts& parts, const Buffer& data, const Reduction& reduction) {
        const auto reduce = [&](const Range& range) {
            const std::size_t at = range.first * data.element_size();
            for (int i = 0; i < hub_->size(); ++i) {
                const int rank = (hub_->rank() + i) % hub_->size();
                std::byte* const theirs = parts.at(rank, hub_->note_of(rank).place.offset) + at;
                sources_[static_cast<std::size_t>(rank)] = theirs;
                results_[static_cast<std::size_t>(i)] = theirs;  // the own one first
            }
            reduce_range(data.slice(range.first, range.count), results_, reduction);
        };
        if (hosts_.between != nullptr) {
            // In the pieces of all_reduce_through, by which other hosts may go.
            for_pieces(data, [&](std::size_t done, const Buffer& some) {
                const Range own = slice(some.count, slices(some), hub_->rank());
                reduce({done + own.first, own.count});
            });
            return hub_->part();
        }
        if (hub_->has_own_processor()) {
            reduce(slice(data.count, hub_->size(), hub_->rank()));
            return hub_->part();
        }
        // Whoever has a processor goes on.
        constexpr std::size_t piece_bytes = 65536;
        const std::size_t piece = std::max<std::size_t>(piece_bytes / data.element_size(), 64);
        hub_->share((data.count + piece - 1) / piece, [&](std::size_t i) {
            reduce({i * piece, std::min(piece, data.count - i * piece)});
        });
    }

    /// How many ranks have a slice of the elements to reduce.
    [[nodiscard]] int slices(const Buffer& data) const noexcept {
        if (hosts_.between == nullptr) return hub_->size();
        constexpr std::size_t smallest_message = 8192;
        const std::size_t wanted = std::max<std::size_t>(data.bytes() / smallest_message, 1);
        return static_cast<int>(std::min(wanted, static_cast<std::size_t>(hosts_.slices)));
    }

    /// In how many bytes elements go through shared memory: as the caches like it, or messages.
    [[nodiscard]] std::size_t stage_bytes() const noexcept {
        return hosts_.between == nullptr ? std::size_t{256} << 10 : NodeHub::stage_bytes;
    }

    /// action(first element, elements)
    template <class Action>
    void for_pieces(const Buffer& data, Action&& action) const {
        const std::size_t piece = std::max<std::size_t>(stage_bytes() / data.element_size(), 1);
        for (std::size_t done = 0; done < data.count; done += piece)
            action(done, data.slice(done, std::min(piece, data.count - done)));
    }

    /// Piece by piece. Each rank writes what others reduce, and reads what they have reduced.
    void all_reduce_through(const Buffer& data, const Reduction& reduction) {
        const auto own_range = [&](const Buffer& some) {
            return slice(some.count, slices(some), hub_->rank());
        };
        const auto copy_in = [&](const Buffer& some) {
            const Range own = own_range(some);
            const Buffer before = some.slice(0, own.first);
            const std::size_t end = own.first + own.count;
            const Buffer after = some.slice(end, some.count - end);
            copy(hub_->next_stage(), before.data, before.bytes());
            copy(hub_->next_stage() + end * some.element_size(), after.data, after.bytes());
        };
        for_pieces(data, [&](std::size_t done, const Buffer& some) {
            if (done == 0) {
                copy_in(some);
                hub_->meet({});
            }
            const Range own = own_range(some);
            const Buffer own_slice = some.slice(own.first, own.count);
            const std::size_t at = own.first * some.element_size();
            for (int rank = 0; rank < hub_->size(); ++rank)
                sources_[static_cast<std::size_t>(rank)] =
                    rank == hub_->rank() ? own_slice.data : hub_->stage_of(rank) + at;
            const std::array<void*, 2> results{own_slice.data, hub_->next_result() + at};
            reduce_range(own_slice, results, reduction);
            const std::size_t next = done + some.count;
            if (next < data.count) copy_in(data.slice(next, std::min(some.count, data.count - next)));
            hub_->meet({});
            const std::size_t end = at + own_slice.bytes();
            auto* const out = static_cast<std::byte*>(some.data);
            copy(out, hub_->result(), at);
            copy(out + end, hub_->result() + end, some.bytes() - end);
        });
    }

    /// results[k] = the ranks' sources, reduced over all hosts as well. `like`: their shape.
    void reduce_range(const Buffer& like, std::span<void* const> results, const Reduction& reduction) {
        const auto divisor = static_cast<double>(hosts_.world);
        if (hosts_.between == nullptr)
            return reduce_together({sources_, results, like.count, divisor}, like, like.dtype, reduction);
        if (like.count == 0) return;
        const ReduceOp partial = reduction.averages() ? ReduceOp::sum : reduction.op;
        Buffer sum = like.at(results[0]);
        if (needs_wide_accumulation(like.dtype, reduction)) {
            sum.dtype = accumulation_dtype(like.dtype);
            wide_.resize(sum.bytes());
            sum.data = wide_.data();
        }
        reduce_together({sources_, {&sum.data, 1}, like.count}, like, sum.dtype, partial);
        hosts_.between(sum, partial);
        const void* const total = sum.data;
        reduce_together({{&total, 1}, results, like.count, divisor}, sum, like.dtype, reduction);
    }

    // The other verbs

    void reduce_scatter(const Collective& call) {
        const Buffer& input = call.input;
        const Buffer& output = call.output;
        const std::size_t own = static_cast<std::size_t>(hub_->rank()) * output.bytes();
        const VectorSum job{sources_, {&output.data, 1}, output.count, static_cast<double>(hosts_.world)};
        if (input.bytes() <= NodeHub::slot_bytes) {
            copy(hub_->next_slot(), input.data, input.bytes());
            meet(call, {});
            for (int rank = 0; rank < hub_->size(); ++rank)
                sources_[static_cast<std::size_t>(rank)] = hub_->slot_of(rank) + own;
            return reduce_together(job, output, output.dtype, call.reduction);
        }
        const bool in_own_place = output.data == static_cast<std::byte*>(input.data) + own;
        if (overlap(input, output) && !in_own_place) {  // others read there meanwhile
            const algorithms::Scratch apart(output);
            Collective other = call;
            other.output = apart.buffer();
            reduce_scatter(other);
            return copy(output.data, apart.buffer().data, output.bytes());
        }
        meet(call, place_of(input));
        if (const Parts parts = common_memory(); parts.first != nullptr) {
            for (int rank = 0; rank < hub_->size(); ++rank)
                sources_[static_cast<std::size_t>(rank)] =
                    parts.at(rank, hub_->note_of(rank).place.offset) + own;
            reduce_together(job, output, output.dtype, call.reduction);
            return hub_->part();
        }
        const std::size_t es = output.element_size();
        const std::size_t piece = std::max<std::size_t>(stage_bytes() / unsigned_size() / es, 1);
        for (std::size_t done = 0; done < output.count; done += piece) {
            const std::size_t count = std::min(piece, output.count - done);
            for (int rank = 0; rank < hub_->size(); ++rank) {
                const auto to = static_cast<std::size_t>(rank);
                if (rank == hub_->rank()) continue;
                copy(hub_->next_stage() + to * count * es, input.slice(to * output.count + done, count).data,
                     count * es);
            }
            hub_->meet({});
            const auto place = static_cast<std::size_t>(hub_->rank());
            for (int rank = 0; rank < hub_->size(); ++rank)
                sources_[static_cast<std::size_t>(rank)] =
                    rank == hub_->rank() ? static_cast<const std::byte*>(input.data) + own + done * es
                                         : hub_->stage_of(rank) + place * count * es;
            void* const result = output.slice(done, count).data;
            reduce_together({sources_, {&result, 1}, count, static_cast<double>(hosts_.world)}, output,
                            output.dtype, call.reduction);
        }
    }

    void all_gather(const Collective& call) {
        const std::size_t bytes = call.input.bytes();
        auto* const out = static_cast<std::byte*>(call.output.data);
        const auto part_of = [&](int rank) { return out + static_cast<std::size_t>(rank) * bytes; };
        const auto collect = [&](auto&& memory_of, std::size_t done, std::size_t some) {
            for (int rank = 0; rank < hub_->size(); ++rank) {
                if (rank != hub_->rank()) copy(part_of(rank) + done, memory_of(rank), some);
            }
        };
        const auto slots = [&](int rank) { return hub_->slot_of(rank); };
        const auto stages = [&](int rank) { return hub_->stage_of(rank); };
        if (part_of(hub_->rank()) != call.input.data) copy(part_of(hub_->rank()), call.input.data, bytes);
        if (bytes <= NodeHub::slot_bytes) {
            copy(hub_->next_slot(), call.input.data, bytes);
            meet(call, {});
            return collect(slots, 0, bytes);
        }
        meet(call, place_of(call.input));
        if (const Parts parts = common_memory(); parts.first != nullptr) {
            collect([&](int rank) { return parts.at(rank, hub_->note_of(rank).place.offset); }, 0, bytes);
            return hub_->part();
        }
        const auto* const in = part_of(hub_->rank());
        for (std::size_t done = 0; done < bytes; done += stage_bytes()) {
            const std::size_t some = std::min(stage_bytes(), bytes - done);
            copy(hub_->next_stage(), in + done, some);
            hub_->meet({});
            collect(stages, done, some);
        }
    }

    void broadcast(const Collective& call) {
        const Buffer& data = call.output;
        const std::size_t bytes = data.bytes();
        const bool is_root = hub_->rank() == call.root;
        if (bytes <= NodeHub::slot_bytes) {
            if (is_root) copy(hub_->next_slot(), data.data, bytes);
            meet(call, {});
            if (!is_root) copy(data.data, hub_->slot_of(call.root), bytes);
            return;
        }
        meet(call, place_of(data));
        const NodePlace place = hub_->note_of(call.root).place;
        if (const Parts parts = common_memory(); parts.first != nullptr) {
            if (!is_root) copy(data.data, parts.at(call.root, place.offset), bytes);
            return hub_->part();
        }
        auto* const own = static_cast<std::byte*>(data.data);
        for (std::size_t done = 0; done < bytes; done += stage_bytes()) {
            const std::size_t some = std::min(stage_bytes(), bytes - done);
            if (is_root) copy(hub_->next_stage(), own + done, some);
            hub_->meet({});
            if (!is_root) copy(own + done, hub_->stage_of(call.root), some);
        }
    }

    std::unique_ptr<NodeHub> hub_;
    Hosts hosts_;
    /// By rank; of the reduction under way.
    std::vector<const void*> sources_;
    std::vector<void*> results_;
    std::vector<std::byte> wide_;
};

}  // namespace dptk::detail
