#pragma once

#include "dptk/comm/shm/context.hpp"

#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <utility>

#include "dptk/comm/algorithms/local_reduce.hpp"
#include "dptk/comm/transport.hpp"
#include "dptk/core/detail/error_access.hpp"
#include "dptk/core/detail/text.hpp"
#include "dptk/core/error.hpp"

namespace DPTK_NAMESPACE::detail {

DPTK_INLINE ElementSlice shm_slice(std::size_t count, int slices, int rank) noexcept {
    constexpr std::size_t granule = 64;
    const std::size_t granules = (count + granule - 1) / granule;
    const auto n = static_cast<std::size_t>(slices);
    const auto begin = [&](std::size_t i) {
        return std::min(count, (granules / n * i + std::min(granules % n, i)) * granule);
    };
    const auto own = static_cast<std::size_t>(rank);
    return own < n ? ElementSlice{begin(own), begin(own + 1) - begin(own)} : ElementSlice{};
}

DPTK_INLINE void shm_copy(void* to, const void* from, std::size_t bytes) noexcept {
    if (bytes <= 64) {
        if (bytes != 0) std::memcpy(to, from, bytes);
        return;
    }
    const std::size_t words = bytes / sizeof(float);
    const std::size_t rest = bytes % sizeof(float);
    if (words != 0) sum_vectors<float>({{&from, 1}, {&to, 1}, words});
    if (rest != 0)
        std::memcpy(static_cast<std::byte*>(to) + bytes - rest,
                    static_cast<const std::byte*>(from) + bytes - rest, rest);
}

DPTK_INLINE ShmContext::ShmContext(std::unique_ptr<ShmRegion> region, ShmHosts hosts,
                                   std::function<void(const Collective&)> across)
    : sources(static_cast<std::size_t>(region->size())),
      results(static_cast<std::size_t>(region->size())),
      region_(std::move(region)),
      hosts_(std::move(hosts)),
      across_(std::move(across)) {}

DPTK_INLINE void ShmContext::enter_barrier(const Collective& call, const ShmAddress& address) {
    enter_barrier(call, CallRecord{.address = address});
}

DPTK_INLINE void ShmContext::enter_barrier_with(const Buffer& elements, const Collective& call) {
    CallRecord record;
    if (elements.count != 0) std::memcpy(record.elements.data(), elements.data, elements.bytes());
    enter_barrier(call, record);
}

DPTK_INLINE void ShmContext::enter_barrier(const Collective& call, CallRecord record) {
    record.call = PackedCall(call).words();
    if (has_buffers(call.verb))
        record.element_size = static_cast<std::uint32_t>(call.shared_shape().element_size());
    if (!call.counts.empty()) record.counts = static_cast<std::uint32_t>(hash_of(call));
    region_->enter_barrier(record);
    const CallRecord& first = region_->record_of(0);
    for (int other = 1; other < size(); ++other) {
        const CallRecord& theirs = region_->record_of(other);
        const bool equal_calls =
            theirs.call.first == first.call.first && theirs.call.second == first.call.second;
        const bool equal_elements = theirs.element_size == first.element_size;
        if (equal_calls && equal_elements && theirs.counts == first.counts) [[likely]]
            continue;
        const auto describe = [&](const CallRecord& published) {
            const bool with_size = equal_calls && !equal_elements;
            return describe_packed(published.call) +
                   (with_size ? text(" of ", published.element_size, " bytes each") : std::string());
        };
        const std::vector<int>& ranks = hosts_.local();
        MismatchError error(text("rank ", ranks[static_cast<std::size_t>(other)], " calls ", describe(theirs),
                                 " where rank ", ranks[0], " calls ", describe(first),
                                 equal_calls && equal_elements ? ": their counts differ" : ""),
                            {.rank = ranks[static_cast<std::size_t>(other)]});
        if (one_host()) detail::ErrorAccess::mark_agreed(error);
        throw error;
    }
}

DPTK_INLINE std::shared_ptr<void> ShmContext::allocate(std::size_t bytes) {
    enter_barrier(allocation_call(bytes));
    const std::size_t most = std::numeric_limits<std::size_t>::max() / 2 / sources.size();
    std::shared_ptr<void> memory = bytes <= most ? region_->allocate(bytes) : nullptr;
    return memory ? memory : allocate_aligned(bytes);
}

DPTK_INLINE ShmAddress ShmContext::address_of(const Buffer& buffer) const {
    return region_->allocations()->find(buffer.data, buffer.bytes());
}

DPTK_INLINE ShmContext::Parts ShmContext::common_memory() const {
    const std::uint64_t allocation = region_->record_of(0).address.allocation;
    for (int other = 0; other < size(); ++other) {
        if (region_->record_of(other).address.allocation != allocation) return {};
    }
    return allocation == 0 ? Parts{} : region_->allocations()->parts(allocation);
}

DPTK_INLINE std::vector<void*> ShmContext::peer_memory(const Buffer& buffer) const {
    const ShmAddress address = address_of(buffer);
    if (!one_host() || address.allocation == 0) return {};
    const Parts parts = region_->allocations()->parts(address.allocation);
    std::vector<void*> memory;
    for (int other = 0; other < size(); ++other) memory.push_back(parts.at(other, address.offset));
    return memory;
}

DPTK_INLINE bool ShmContext::some_memory_is_shared() const {
    for (int other = 0; other < size(); ++other) {
        if (region_->record_of(other).address.allocation != 0) return true;
    }
    return false;
}

DPTK_INLINE std::size_t ShmContext::stage_bytes() const noexcept {
    return one_host() ? std::size_t{256} << 10 : ShmRegion::stage_bytes;
}

DPTK_INLINE void* ShmContext::scratch(std::size_t bytes) {
    if (scratch_.size() < bytes) scratch_.resize(bytes);
    return scratch_.data();
}

DPTK_INLINE ReduceOp partial_op(const Reduction& reduction) noexcept {
    return reduction.averages() ? ReduceOp::sum : reduction.op;
}

DPTK_INLINE DType partial_dtype(DType dtype, const Reduction& reduction) noexcept {
    return needs_wide_accumulation(dtype, reduction) ? accumulation_dtype(dtype) : dtype;
}

}  // namespace DPTK_NAMESPACE::detail
