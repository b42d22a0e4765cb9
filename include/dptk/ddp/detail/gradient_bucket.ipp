#pragma once

#include "dptk/ddp/detail/gradient_bucket.hpp"

#include <cstring>

#include "dptk/core/detail/device_calls.hpp"

namespace DPTK_NAMESPACE::detail {

DPTK_INLINE GradientBucket::GradientBucket(ProcessGroup& group, const Bucket& bucket,
                                           const std::vector<ParameterRef>& parameters, Status status,
                                           std::size_t parts)
    : indices_(bucket.parameters) {
    const std::size_t alignment = 64 / dtype_size(bucket.dtype);
    std::size_t count = 0;
    for (const std::size_t index : indices_) {
        offsets_.push_back(count);
        count += (parameters[index].count + alignment - 1) / alignment * alignment;
    }
    count = (count + alignment * parts - 1) / (alignment * parts) * (alignment * parts);
    gradients_ = count;
    if (status == Status::last_element) ++count;
    all_ = {nullptr, count, bucket.dtype, bucket.device};
    memory_ = all_.on_device() ? group.engine().allocate_on_device(all_.bytes(), all_.device.index).data
                               : group.engine().allocate(all_.bytes());
    all_.data = memory_.get();
}

DPTK_INLINE Buffer GradientBucket::gradient(std::size_t position, std::size_t count) const noexcept {
    return all_.slice(offsets_[position], count);
}

DPTK_INLINE void GradientBucket::set_status(bool raised) {
    visit_floating([&](auto zero) {
        store(all_.data, all_.count - 1, static_cast<decltype(zero)>(raised ? 1.0F : 0.0F));
    });
}

DPTK_INLINE bool GradientBucket::status() const {
    bool raised = false;
    visit_floating([&](auto zero) {
        raised = static_cast<float>(load<decltype(zero)>(all_.data, all_.count - 1)) != 0;
    });
    return raised;
}

DPTK_INLINE Collective GradientBucket::all_reduce(const Reduction& reduction) const noexcept {
    return {.verb = Verb::all_reduce, .input = all_, .output = all_, .reduction = reduction};
}

DPTK_INLINE Buffer GradientBucket::part(int rank, int ranks) const noexcept {
    const std::size_t count = gradients_ / static_cast<std::size_t>(ranks);
    return all_.slice(static_cast<std::size_t>(rank) * count, count);
}

DPTK_INLINE Collective GradientBucket::reduce_scatter(const Reduction& reduction, int rank,
                                                      int ranks) const noexcept {
    return {.verb = Verb::reduce_scatter,
            .input = gradients(),
            .output = part(rank, ranks),
            .reduction = reduction};
}

DPTK_INLINE void copy_gradient(const Buffer& to, const void* from) {
    if (to.bytes() == 0 || from == to.data) return;
    if (to.on_device()) return device_calls().copy(to.data, from, to.bytes(), to.device.index);
    std::memcpy(to.data, from, to.bytes());
}

DPTK_INLINE void copy_scaled(const Buffer& to, const Buffer& from, double factor) {
    if (to.bytes() == 0) return;
    if (to.on_device()) {
        if (factor != 0) return copy_gradient(to, from.data);
        return device_calls().set_zero(to.data, to.bytes(), to.device.index);
    }
    if (factor == 0) {
        std::memset(to.data, 0, to.bytes());
    } else if (to.dtype != from.dtype) {
        convert(to, from);
        if (factor != 1) scale(to, to.data, factor);
    } else if (factor == 1) {
        copy_gradient(to, from.data);
    } else {
        scale(to, from.data, factor);
    }
}

}  // namespace DPTK_NAMESPACE::detail
