/// The memory of one bucket: the gradients that are sent together and, in the last bucket, one additional
/// element that carries the ranks' status.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "dptk/comm/algorithms/local_reduce.hpp"
#include "dptk/comm/process_group.hpp"
#include "dptk/core/config.hpp"
#include "dptk/core/parameter_ref.hpp"
#include "dptk/ddp/bucket_plan.hpp"

namespace DPTK_NAMESPACE::detail {

class GradientBucket {
  public:
    enum class Status { none, last_element };

    /// Allocates the bucket in memory of the transport. Collective. Every gradient, and each of `parts`
    /// equal parts of the bucket, is aligned to 64 bytes.
    GradientBucket(ProcessGroup& group, const Bucket& bucket, const std::vector<ParameterRef>& parameters,
                   Status status, std::size_t parts);

    /// Returns the indices of the parameters in this bucket.
    [[nodiscard]] const std::vector<std::size_t>& indices() const noexcept { return indices_; }

    /// Returns `count` elements of the gradient of the `position`th parameter in this bucket.
    [[nodiscard]] Buffer gradient(std::size_t position, std::size_t count) const noexcept;

    /// Returns the offset, in elements, of the gradient of the `position`th parameter in this bucket.
    [[nodiscard]] std::size_t offset(std::size_t position) const noexcept { return offsets_[position]; }

    /// Returns all gradients, with padding zeros between them.
    [[nodiscard]] Buffer gradients() const noexcept { return all_.slice(0, gradients_); }

    /// Returns the element that carries the status, if the bucket has one.
    [[nodiscard]] Buffer status_element() const noexcept { return all_.slice(all_.count - 1, 1); }

    /// Sets the status element of a bucket in host memory. After the reduction, the element is above 0 if
    /// `raised` was true on any rank.
    void set_status(bool raised);

    [[nodiscard]] bool status() const;

    [[nodiscard]] Collective all_reduce(const Reduction& reduction) const noexcept;

    /// Returns the part of the bucket that belongs to `rank`, one of `ranks`.
    [[nodiscard]] Buffer part(int rank, int ranks) const noexcept;

    [[nodiscard]] Collective reduce_scatter(const Reduction& reduction, int rank, int ranks) const noexcept;

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
    std::size_t gradients_ = 0;  // the number of elements, without the status element
    Buffer all_;
    std::shared_ptr<void> memory_;
};

/// Computes to = from. Device memory is copied on the device's default stream. `from` may be `to`.
void copy_gradient(const Buffer& to, const void* from);

/// Computes to = from * factor, converted to the type of `to`. A factor of 0 writes zeros, whatever `from`
/// contains. In device memory, both must have one type, and factors other than 0 are ignored, since the
/// reduction applies them.
void copy_scaled(const Buffer& to, const Buffer& from, double factor);

}  // namespace DPTK_NAMESPACE::detail

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/ddp/detail/gradient_bucket.ipp"
#endif
