/// The memory of one bucket: the gradients that travel together, and one element behind the last bucket's
/// that carries the ranks' status.
#pragma once

#include <cstddef>
#include <cstring>
#include <memory>
#include <vector>

#include "dptk/comm/local_reduce.hpp"
#include "dptk/comm/process_group.hpp"
#include "dptk/core/device_calls.hpp"
#include "dptk/ddp/bucket_plan.hpp"
#include "dptk/ddp/parameter_ref.hpp"

namespace dptk::detail {

class GradientBucket {
  public:
    enum class Status { none, last_element };

    /// Collective, since the memory is the transport's. Every gradient is aligned to 64 bytes, and so is each
    /// of `parts` equal parts of the bucket.
    GradientBucket(ProcessGroup& group, const Bucket& bucket, const std::vector<ParameterRef>& parameters,
                   Status status, std::size_t parts)
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
        memory_ = all_.on_device() ? group.channel().allocate_on_device(all_.bytes(), all_.device.index).data
                                   : group.channel().allocate(all_.bytes());
        all_.data = memory_.get();
    }

    /// The parameters in this bucket.
    [[nodiscard]] const std::vector<std::size_t>& indices() const noexcept { return indices_; }

    /// Where the gradient of the `position`th of them lies; `count` elements of it.
    [[nodiscard]] Buffer gradient(std::size_t position, std::size_t count) const noexcept {
        return all_.slice(offsets_[position], count);
    }

    /// Where it begins in the bucket, in elements.
    [[nodiscard]] std::size_t offset(std::size_t position) const noexcept { return offsets_[position]; }

    /// All gradients, with zeros between them.
    [[nodiscard]] Buffer gradients() const noexcept { return all_.slice(0, gradients_); }

    /// The element that carries the status, where there is one.
    [[nodiscard]] Buffer status_element() const noexcept { return all_.slice(all_.count - 1, 1); }

    /// In host memory: above 0 after the reduction where any rank has raised it.
    void set_status(bool raised) {
        visit_floating([&](auto zero) {
            store(all_.data, all_.count - 1, static_cast<decltype(zero)>(raised ? 1.0F : 0.0F));
        });
    }

    [[nodiscard]] bool status() const {
        bool raised = false;
        visit_floating([&](auto zero) {
            raised = static_cast<float>(load<decltype(zero)>(all_.data, all_.count - 1)) != 0;
        });
        return raised;
    }

    [[nodiscard]] Collective all_reduce(const Reduction& reduction) const noexcept {
        return {.verb = Verb::all_reduce, .input = all_, .output = all_, .reduction = reduction};
    }

    /// The part of one of `ranks` ranks.
    [[nodiscard]] Buffer part(int rank, int ranks) const noexcept {
        const std::size_t count = gradients_ / static_cast<std::size_t>(ranks);
        return all_.slice(static_cast<std::size_t>(rank) * count, count);
    }

    [[nodiscard]] Collective reduce_scatter(const Reduction& reduction, int rank, int ranks) const noexcept {
        return {.verb = Verb::reduce_scatter,
                .input = gradients(),
                .output = part(rank, ranks),
                .reduction = reduction};
    }

    [[nodiscard]] const std::shared_ptr<void>& memory() const noexcept { return memory_; }

  private:
    template <class Fn>
    void visit_floating(Fn&& fn) const {
        visit_dtype(all_.dtype, [&](auto zero) {
            if constexpr (Real<decltype(zero)>) fn(zero);
        });
    }

    std::vector<std::size_t> indices_;
    std::vector<std::size_t> offsets_;
    std::size_t gradients_ = 0;  // elements
    Buffer all_;
    std::shared_ptr<void> memory_;
};

/// to = from. In device memory it takes its place in the device's default stream. `from` may be `to`.
inline void copy_gradient(const Buffer& to, const void* from) {
    if (to.bytes() == 0 || from == to.data) return;
    if (to.on_device()) return device_calls().copy(to.data, from, to.bytes(), to.device.index);
    std::memcpy(to.data, from, to.bytes());
}

/// to = from * factor; zeros for a factor of 0, whatever `from` holds. In device memory all factors but 0 are
/// left to the reduction.
inline void copy_scaled(const Buffer& to, const void* from, double factor) {
    if (to.bytes() == 0) return;
    if (to.on_device()) {
        if (factor != 0) return copy_gradient(to, from);
        return device_calls().set_zero(to.data, to.bytes(), to.device.index);
    }
    if (factor == 0) {
        std::memset(to.data, 0, to.bytes());
    } else if (factor == 1) {
        copy_gradient(to, from);
    } else {
        scale(to, from, factor);
    }
}

}  // namespace dptk::detail
