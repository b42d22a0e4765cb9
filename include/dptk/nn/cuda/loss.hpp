/// Softmax cross-entropy on a GPU. The sums stay in device memory until they are fetched.
#pragma once

#include <cstdint>

#include "dptk/core/config.hpp"
#include "dptk/core/cuda/memory.hpp"
#include "dptk/core/cuda/tensor.hpp"
#include "dptk/core/device_span.hpp"
#include "dptk/nn/cuda/kernels.hpp"

namespace DPTK_NAMESPACE::nn {

/// Sums over samples.
using LossTotals = cuda::kernels::LossTotals;

class DeviceLoss {
  public:
    /// Uses the current device. Enqueues all work on `stream`, which must outlive this object.
    explicit DeviceLoss(StreamRef stream = {});

    /// Enqueues the loss of a batch on the stream, like nn::softmax_cross_entropy: writes the gradient of
    /// the mean over the batch to `gradient`, and adds loss and correct predictions to the totals. `logits`
    /// are [n, classes], with n `labels`. A label that is not a class makes the loss NaN. Throws
    /// ArgumentError if the numbers of labels and samples differ.
    void add(const DeviceTensor<float>& logits, DeviceSpan<const std::int32_t> labels,
             DeviceTensor<float>& gradient);

    /// Returns the totals of all batches since construction or the last reset(). Blocks until these batches
    /// are done.
    [[nodiscard]] LossTotals fetch() const;

    /// Enqueues zeroing of the totals on the stream.
    void reset();

  private:
    struct Storage {
        LossTotals value;
    };

    [[nodiscard]] LossTotals* totals() noexcept { return &totals_.data()->value; }

    StreamRef stream_;
    dptk::cuda::DeviceBuffer<Storage> totals_;
    dptk::cuda::DeviceBuffer<float> scratch_;
};

}  // namespace DPTK_NAMESPACE::nn

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/nn/cuda/loss.ipp"
#endif
