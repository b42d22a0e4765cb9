/// Softmax cross-entropy on a GPU, whose sums stay there until somebody asks for them.
#pragma once

#include <cstdint>

#include "dptk/core/config.hpp"
#include "dptk/core/cuda/memory.hpp"
#include "dptk/core/device_span.hpp"
#include "dptk/nn/cuda/kernels.hpp"
#include "dptk/nn/cuda/tensor.hpp"

namespace DPTK_NAMESPACE::nn {

/// Sums over samples.
using LossTotals = cuda::kernels::LossTotals;

class DeviceLoss {
  public:
    /// On the device that is current; its work goes on the stream, which must outlive it.
    explicit DeviceLoss(StreamRef stream = {});

    /// Puts a batch's loss on the stream, as nn::softmax_cross_entropy has it: `gradient` becomes that of the
    /// mean over the batch, and loss and hits go into the totals. A label that is no class makes the loss
    /// NaN. \param logits [n, classes] \param labels n of them \throws ArgumentError where labels and logits
    /// differ in number
    void add(const DeviceTensor<float>& logits, DeviceSpan<const std::uint8_t> labels,
             DeviceTensor<float>& gradient);

    /// Of all batches since reset(). Blocks until they are done.
    [[nodiscard]] LossTotals fetch() const;

    /// Behind what the stream has been given.
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
