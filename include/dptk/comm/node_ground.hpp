/// What the collectives of a host's ranks have in common: they come together with notes, see that all make
/// the same call, and find the memory that they share.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "dptk/comm/collective.hpp"
#include "dptk/comm/local_reduce.hpp"
#include "dptk/comm/node_hosts.hpp"
#include "dptk/comm/node_hub.hpp"
#include "dptk/comm/transport_defaults.hpp"
#include "dptk/core/buffer.hpp"
#include "dptk/core/error.hpp"
#include "dptk/core/text.hpp"

namespace dptk::detail {

/// A range of elements.
struct NodeRange {
    std::size_t first = 0;
    std::size_t count = 0;
};

/// The slice that one of so many ranks works on. They begin where lines of the cache do, if the elements do.
[[nodiscard]] inline NodeRange node_slice(std::size_t count, int slices, int rank) noexcept {
    constexpr std::size_t granule = 64;
    const std::size_t granules = (count + granule - 1) / granule;
    const auto n = static_cast<std::size_t>(slices);
    const auto begin = [&](std::size_t i) {
        return std::min(count, (granules / n * i + std::min(granules % n, i)) * granule);
    };
    const auto own = static_cast<std::size_t>(rank);
    return own < n ? NodeRange{begin(own), begin(own + 1) - begin(own)} : NodeRange{};
}

/// Not by memcpy, which passes the caches by where much is copied: the other rank reads it at once.
inline void node_copy(void* to, const void* from, std::size_t bytes) noexcept {
    const std::size_t words = bytes / sizeof(float);
    const std::size_t rest = bytes % sizeof(float);
    if (words != 0) sum_vectors<float>({{&from, 1}, {&to, 1}, words});
    if (rest != 0)
        std::memcpy(static_cast<std::byte*>(to) + bytes - rest,
                    static_cast<const std::byte*>(from) + bytes - rest, rest);
}

class NodeGround {
  public:
    using Parts = NodeAllocations::Parts;

    /// `across` carries out calls with the ranks that have this one's place on the other hosts; null where
    /// there is one host, or no such rank on one of them.
    NodeGround(std::unique_ptr<NodeHub> hub, NodeHosts hosts, std::function<void(const Collective&)> across)
        : sources(static_cast<std::size_t>(hub->size())),
          results(static_cast<std::size_t>(hub->size())),
          hub_(std::move(hub)),
          hosts_(std::move(hosts)),
          across_(std::move(across)) {}

    [[nodiscard]] NodeHub& hub() noexcept { return *hub_; }
    [[nodiscard]] const NodeHosts& hosts() const noexcept { return hosts_; }
    [[nodiscard]] bool one_host() const noexcept { return hosts_.count() == 1; }

    /// Of this host.
    [[nodiscard]] int rank() const noexcept { return hub_->rank(); }
    [[nodiscard]] int size() const noexcept { return hub_->size(); }

    /// By how many an average divides.
    [[nodiscard]] double world() const noexcept { return static_cast<double>(hosts_.world); }

    void across(const Collective& call) const { across_(call); }

    /// Comes together with the other ranks of the host. Throws MismatchError, on all of them, where one makes
    /// another call.
    void meet(const Collective& call, const NodePlace& place = {}) {
        const std::size_t element_size = has_buffers(call.verb) ? call.shared_shape().element_size() : 0;
        hub_->meet({PackedCall(call).words(), element_size, place});
        const NodeNote& first = hub_->note_of(0);
        for (int other = 1; other < size(); ++other) {
            const NodeNote& theirs = hub_->note_of(other);
            const bool equal_calls =
                theirs.call.first == first.call.first && theirs.call.second == first.call.second;
            if (equal_calls && theirs.element_size == first.element_size) continue;
            const auto describe = [&](const NodeNote& note) {
                return describe_packed(note.call) +
                       (equal_calls ? text(" of ", note.element_size, " bytes each") : std::string());
            };
            const std::vector<int>& ranks = hosts_.local();
            MismatchError error(text("rank ", ranks[static_cast<std::size_t>(other)], " calls ",
                                     describe(theirs), " where rank ", ranks[0], " calls ", describe(first)));
            if (one_host()) error.mark_agreed();
            throw error;
        }
    }

    /// Zeroed memory that all ranks of the host reach; of this rank's own where the system gives them none,
    /// on all of them. Collective among them. Throws MismatchError where they ask for different sizes.
    [[nodiscard]] std::shared_ptr<void> allocate(std::size_t bytes) {
        meet(allocation_call(bytes));
        const std::size_t most = std::numeric_limits<std::size_t>::max() / 2 / sources.size();
        std::shared_ptr<void> memory = bytes <= most ? hub_->allocate(bytes) : nullptr;
        return memory ? memory : allocate_aligned(bytes);
    }

    [[nodiscard]] NodePlace place_of(const Buffer& buffer) const {
        return hub_->allocations()->find(buffer.data, buffer.bytes());
    }

    /// Where all ranks' notes name one allocation: that one. Otherwise nobody's memory is reached.
    [[nodiscard]] Parts common_memory() const {
        const std::uint64_t allocation = hub_->note_of(0).place.allocation;
        for (int other = 0; other < size(); ++other) {
            if (hub_->note_of(other).place.allocation != allocation) return {};
        }
        return allocation == 0 ? Parts{} : hub_->allocations()->parts(allocation);
    }

    /// All ranks' memory at that place; none where there are other hosts, or it is this rank's alone.
    [[nodiscard]] std::vector<void*> peer_memory(const Buffer& buffer) const {
        const NodePlace place = place_of(buffer);
        if (!one_host() || place.allocation == 0) return {};
        const Parts parts = hub_->allocations()->parts(place.allocation);
        std::vector<void*> memory;
        for (int other = 0; other < size(); ++other) memory.push_back(parts.at(other, place.offset));
        return memory;
    }

    [[nodiscard]] bool some_memory_is_shared() const {
        for (int other = 0; other < size(); ++other) {
            if (hub_->note_of(other).place.allocation != 0) return true;
        }
        return false;
    }

    /// In how many bytes elements go through shared memory: as the caches like it, or messages.
    [[nodiscard]] std::size_t stage_bytes() const noexcept {
        return one_host() ? std::size_t{256} << 10 : NodeHub::stage_bytes;
    }

    /// action(first element, elements)
    template <class Action>
    void for_pieces(const Buffer& data, Action&& action) const {
        const std::size_t piece = std::max<std::size_t>(stage_bytes() / data.element_size(), 1);
        for (std::size_t done = 0; done < data.count; done += piece)
            action(done, data.slice(done, std::min(piece, data.count - done)));
    }

    // Of the reduction under way: where each rank of the host has its elements, and where the result goes.
    std::vector<const void*> sources;
    std::vector<void*> results;

    [[nodiscard]] const void*& source(int rank) noexcept { return sources[static_cast<std::size_t>(rank)]; }

    /// Memory for partial results, until the next call of this.
    [[nodiscard]] void* scratch(std::size_t bytes) {
        if (scratch_.size() < bytes) scratch_.resize(bytes);
        return scratch_.data();
    }

  private:
    std::unique_ptr<NodeHub> hub_;
    NodeHosts hosts_;
    std::function<void(const Collective&)> across_;
    std::vector<std::byte> scratch_;
};

/// Of the ranks of a host, before the hosts' results are combined: sums, and in the wide dtype.
[[nodiscard]] inline ReduceOp partial_op(const Reduction& reduction) noexcept {
    return reduction.averages() ? ReduceOp::sum : reduction.op;
}
[[nodiscard]] inline DType partial_dtype(DType dtype, const Reduction& reduction) noexcept {
    return needs_wide_accumulation(dtype, reduction) ? accumulation_dtype(dtype) : dtype;
}

}  // namespace dptk::detail
