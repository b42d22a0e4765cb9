/// Softmax cross-entropy on a GPU, whose sums stay there until somebody asks for them.
#pragma once

#include <cstddef>
#include <cstdint>

#include "dptk/core/cuda/copy.hpp"
#include "dptk/core/cuda/memory.hpp"
#include "dptk/core/cuda/stream.hpp"
#include "dptk/core/device_span.hpp"
#include "dptk/core/error.hpp"
#include "dptk/core/text.hpp"
#include "dptk/nn/cuda/kernels.hpp"
#include "dptk/nn/cuda/tensor.hpp"

namespace dptk::nn {

/// Sums over samples.
using LossTotals = cuda::kernels::LossTotals;

class DeviceLoss {
  public:
    /// On the device that is current; its work goes on the stream, which must outlive it.
    explicit DeviceLoss(StreamRef stream = {}) : stream_(stream), totals_(1) { reset(); }

    /// Puts a batch's loss on the stream, as nn::softmax_cross_entropy has it: `gradient` becomes that of the
    /// mean over the batch, and loss and hits go into the totals. A label that is no class makes the loss
    /// NaN. \param logits [n, classes] \param labels n of them \throws ArgumentError where labels and logits
    /// differ in number
    void add(const DeviceTensor<float>& logits, DeviceSpan<const std::uint8_t> labels,
             DeviceTensor<float>& gradient) {
        if (logits.shape().size() != 2 || logits.size() == 0)
            throw ArgumentError(dptk::detail::text("DeviceLoss needs logits [n, classes], but gets ",
                                                   dptk::detail::shape_text(logits.shape())));
        const std::size_t n = logits.shape()[0];
        if (labels.size() != n)
            throw ArgumentError(
                dptk::detail::text("DeviceLoss: ", labels.size(), " labels for ", n, " samples"));
        gradient.resize(logits.shape());
        if (2 * n > scratch_.size()) scratch_ = dptk::cuda::DeviceBuffer<float>(2 * n);
        cuda::kernels::softmax_cross_entropy(logits.data(), labels.data(), n, logits.shape()[1],
                                             gradient.data(), totals(), scratch_.data(), stream_);
    }

    /// Of all batches since reset(). Blocks until they are done.
    [[nodiscard]] LossTotals fetch() const {
        LossTotals found;
        dptk::cuda::detail::copy_bytes(&found, totals_.data(), sizeof found, stream_);
        dptk::cuda::synchronize(stream_);
        return found;
    }

    /// Behind what the stream has been given.
    void reset() {
        dptk::cuda::check(cudaMemsetAsync(totals_.data(), 0, sizeof(LossTotals), stream_.get()),
                          "cudaMemsetAsync");
    }

  private:
    struct Storage {
        LossTotals value;
    };

    [[nodiscard]] LossTotals* totals() noexcept { return &totals_.data()->value; }

    StreamRef stream_;
    dptk::cuda::DeviceBuffer<Storage> totals_;
    dptk::cuda::DeviceBuffer<float> scratch_;
};

}  // namespace dptk::nn
