#pragma once

#include "dptk/ddp/elastic_state.hpp"

#include <cstring>
#include <tuple>
#include <utility>

#include "dptk/comm/agreement.hpp"
#include "dptk/comm/detail/elastic_group.hpp"
#include "dptk/core/detail/algorithms.hpp"
#include "dptk/core/detail/device_calls.hpp"
#include "dptk/ddp/detail/gradient_reducer.hpp"

namespace DPTK_NAMESPACE::detail {

/// Copies the elements of a value from or to host memory.
DPTK_INLINE void copy_bytes(void* to, const void* from, std::size_t bytes, Device device) {
    if (device.type == DeviceType::cpu) {
        if (bytes > 0) std::memcpy(to, from, bytes);
    } else {
        device_calls().copy(to, from, bytes, device.index);
    }
}

}  // namespace DPTK_NAMESPACE::detail

namespace DPTK_NAMESPACE {

DPTK_INLINE ElasticState::ElasticState(ProcessGroup& group, DistributedDataParallel& ddp, Only)
    : group_(group), ddp_(ddp) {
    keep_buffers();
}

DPTK_INLINE void ElasticState::keep_buffers() {
    if (group_.is_elastic()) buffers_ = ddp_.reducer().copy_buffers();
}

DPTK_INLINE ElasticState::~ElasticState() = default;

DPTK_INLINE void ElasticState::keep_objects() {
    keep_buffers();
    for (const auto& part : parts_) part->commit();
}

DPTK_INLINE void ElasticState::begin() {
    if (!group_.is_elastic()) return;
    keep_objects();
    restore();
}

DPTK_INLINE void ElasticState::commit() {
    ++steps_;
    if (!group_.is_elastic()) return;
    const std::size_t synchronized = ddp_.reducer().steps();
    if (changes_ == 0 || synchronized == synchronized_)
        throw ArgumentError(
            "ElasticState: a step is complete, but its DistributedDataParallel has synchronized no gradients "
            "in it: a step consists of all of its micro-batches");
    synchronized_ = synchronized;
    generation_ = detail::ElasticGroup::generation(group_).number;
    keep_objects();
}

DPTK_INLINE void ElasticState::restore() {
    if (changes_ == 0) keep_objects();
    detail::ElasticGroup::reform(group_, steps_, [&] { exchange(); });
    ++changes_;
    synchronized_ = ddp_.reducer().steps();
    // The ranks of a program with a mistake would repeat it together for ever.
    constexpr int most_changes = 5;
    const std::vector<detail::MemberId>& members = detail::ElasticGroup::generation(group_).members;
    const bool is_same = steps_ == steps_at_change_ && members_ == members;
    changes_without_step_ = is_same ? changes_without_step_ + 1 : 0;
    steps_at_change_ = steps_;
    members_ = members;
    if (changes_without_step_ < most_changes) return;
    detail::throw_agreed(group_, Error(detail::text("ElasticState: the same ranks have formed their group ",
                                                    most_changes, " times without completing a step")));
}

DPTK_INLINE void ElasticState::exchange() {
    // A rank that was stopped may complete a step that the others have repeated without it.
    using Point = std::pair<std::int64_t, std::int64_t>;
    const std::vector<std::int64_t> steps = group_.all_gather_value(steps_);
    const std::vector<std::int64_t> generations = group_.all_gather_value(generation_);
    const Point own{steps_, generation_};
    Point last = own;
    int root = group_.rank();
    for (int rank = 0; rank < group_.size(); ++rank) {
        const auto i = static_cast<std::size_t>(rank);
        const Point other{steps[i], generations[i]};
        if (other > last || (other == last && rank < root)) {
            last = other;
            root = rank;
        }
    }
    if (last.first < 0)
        detail::throw_agreed(group_, Error("ElasticState: all ranks that had the state of the training have "
                                           "ended while they sent it to the others"));
    const bool is_new = steps_ <= 0;
    if (own != last && !is_new) {
        const std::vector<std::byte> values = copy_values();
        for (const auto& part : parts_) part->back_up();
        try {
            exchange_from(root);
        } catch (...) {
            write_values(values);
            for (const auto& part : parts_) part->roll_back();
            throw;
        }
        for (const auto& part : parts_) part->forget_backup();
    } else {
        if (own != last) steps_ = -1;  // until the state has been received
        exchange_from(root);
    }
    std::tie(steps_, generation_) = last;
    keep_buffers();
}

DPTK_INLINE void ElasticState::exchange_from(int root) {
    ddp_.reducer().restore_buffers(buffers_);
    ddp_.continue_over(group_, root);
    for (const auto& part : parts_) part->exchange(group_, root);
    group_.barrier();
}

DPTK_INLINE std::vector<std::byte> ElasticState::copy_values() {
    std::vector<std::byte> out;
    for (const ParameterRef& parameter : ddp_.reducer().find_parameters()) {
        const Buffer value = parameter.value_buffer();
        const std::size_t first = out.size();
        out.resize(first + value.bytes());
        detail::copy_bytes(out.data() + first, value.data, value.bytes(), value.device);
    }
    return out;
}

DPTK_INLINE void ElasticState::write_values(std::span<const std::byte> values) {
    for (const ParameterRef& parameter : ddp_.reducer().find_parameters()) {
        const Buffer value = parameter.value_buffer();
        detail::copy_bytes(value.data, values.data(), value.bytes(), value.device);
        values = values.subspan(value.bytes());
    }
}

}  // namespace DPTK_NAMESPACE
