#pragma once

#include "dptk/nn/cuda/loss.hpp"

#include <cstddef>

#include "dptk/core/cuda/copy.hpp"
#include "dptk/core/cuda/stream.hpp"
#include "dptk/core/detail/text.hpp"
#include "dptk/core/error.hpp"

namespace DPTK_NAMESPACE::nn {

DPTK_INLINE DeviceLoss::DeviceLoss(StreamRef stream) : stream_(stream), totals_(1) {
    reset();
}

DPTK_INLINE void DeviceLoss::add(const DeviceTensor<float>& logits, DeviceSpan<const std::int32_t> labels,
                                 DeviceTensor<float>& gradient) {
    if (logits.shape().size() != 2 || logits.size() == 0)
        throw ArgumentError(dptk::detail::text("DeviceLoss: expected non-empty logits [n, classes], got ",
                                               dptk::detail::shape_text(logits.shape())));
    const std::size_t n = logits.shape()[0];
    if (labels.size() != n)
        throw ArgumentError(
            dptk::detail::text("DeviceLoss: expected ", n, " labels, one per sample, got ", labels.size()));
    gradient.resize(logits.shape());
    if (2 * n > scratch_.size()) scratch_ = dptk::cuda::DeviceBuffer<float>(2 * n);
    cuda::kernels::softmax_cross_entropy(logits.data(), labels.data(), n, logits.shape()[1], gradient.data(),
                                         totals(), scratch_.data(), stream_);
}

DPTK_INLINE LossTotals DeviceLoss::fetch() const {
    LossTotals found;
    dptk::cuda::detail::copy_bytes(&found, totals_.data(), sizeof found, stream_);
    dptk::cuda::synchronize(stream_);
    return found;
}

DPTK_INLINE void DeviceLoss::reset() {
    dptk::cuda::check(cudaMemsetAsync(totals_.data(), 0, sizeof(LossTotals), stream_.get()),
                      "cudaMemsetAsync");
}

}  // namespace DPTK_NAMESPACE::nn
