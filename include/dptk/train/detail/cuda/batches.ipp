#pragma once

#include "dptk/train/detail/cuda/batches.hpp"

#include <algorithm>
#include <cstring>
#include <limits>

#include "dptk/core/detail/algorithms.hpp"
#include "dptk/core/detail/text.hpp"
#include "dptk/core/error.hpp"
#include "dptk/nn/cuda/kernels.hpp"

namespace DPTK_NAMESPACE::detail {

DPTK_INLINE DeviceBatches::DeviceBatches(nn::Shape image, const TrainerOptions& options, StreamRef stream)
    : image_(std::move(image)),
      batch_size_(options.batch_size),
      scale_(static_cast<float>(options.pixel_scale)),
      stream_(stream) {}

DPTK_INLINE void DeviceBatches::load(const LabeledBatch<std::uint8_t>& batch) {
    send(batch, [&](const std::uint8_t* pixels, const std::int32_t* labels) {
        make_batch(pixels, labels, nullptr);
    });
}

DPTK_INLINE void DeviceBatches::load(const LabeledBatch<float>& batch) {
    send(batch, [&](const float* values, const std::int32_t* labels) {
        // CUDA graphs read the batch at addresses that do not change.
        cuda::detail::copy_bytes(images_.data(), values, images_.size() * sizeof(float), stream_);
        cuda::detail::copy_bytes(labels_.data(), labels, batch.labels.size() * sizeof(std::int32_t), stream_);
    });
}

DPTK_INLINE void DeviceBatches::load(const ImageDataset& dataset, std::span<const std::size_t> indices) {
    make_room(indices.size());
    const Resident& images = resident(dataset);
    if (!indices_) indices_.emplace(batch_size_);
    const auto fill = [&](std::span<std::uint32_t> places) {
        std::transform(indices.begin(), indices.end(), places.begin(),
                       [](std::size_t index) { return static_cast<std::uint32_t>(index); });
    };
    indices_->send(indices.size(), stream_, fill, [&](const std::uint32_t* places) {
        make_batch(images.pixels.data(), images.labels.data(), places);
    });
}

DPTK_INLINE DeviceSpan<const std::int32_t> DeviceBatches::labels() const {
    return std::as_const(labels_).span().subspan(0, images_.shape()[0]);
}

DPTK_INLINE void DeviceBatches::make_room(std::size_t count) {
    if (labels_.size() == 0) {
        images_.resize(batch_size_, image_);
        labels_ = cuda::DeviceBuffer<std::int32_t>(batch_size_);
    }
    images_.resize(count, image_);
}

template <class Value, class Use>
void DeviceBatches::send(const LabeledBatch<Value>& batch, Use&& use) {
    const std::size_t count = batch.labels.size();
    make_room(count);
    const std::size_t bytes_per_sample = sizeof(std::int32_t) + values_per_sample() * sizeof(Value);
    if (bytes_per_sample > bytes_per_sample_) {
        bytes_per_sample_ = 0;  // in case the next call throws
        bytes_.emplace(batch_size_ * bytes_per_sample);
        bytes_per_sample_ = bytes_per_sample;
    }
    const std::size_t label_bytes = count * sizeof(std::int32_t);
    const auto fill = [&](std::span<std::byte> bytes) {
        std::memcpy(bytes.data(), batch.labels.data(), label_bytes);
        std::memcpy(bytes.data() + label_bytes, batch.values.data(), bytes.size() - label_bytes);
    };
    bytes_->send(count * bytes_per_sample, stream_, fill, [&](const std::byte* bytes) {
        use(reinterpret_cast<const Value*>(bytes + label_bytes),
            reinterpret_cast<const std::int32_t*>(bytes));
    });
}

DPTK_INLINE void DeviceBatches::make_batch(const std::uint8_t* pixels, const std::int32_t* labels,
                                           const std::uint32_t* indices) {
    nn::cuda::kernels::load_images(pixels, labels, indices, images_.shape()[0], values_per_sample(), scale_,
                                   images_.data(), labels_.data(), stream_);
}

DPTK_INLINE const DeviceBatches::Resident& DeviceBatches::resident(const ImageDataset& dataset) {
    const auto found = dptk::detail::find(residents_, dataset.id(), &Resident::id);
    if (found != residents_.end()) {
        std::rotate(found, found + 1, residents_.end());
        return residents_.back();
    }
    if (dataset.size() > std::numeric_limits<std::uint32_t>::max())
        throw ArgumentError(
            text("Trainer: data_on_device: expected at most 2^32 - 1 images, got ", dataset.size()));
    if (residents_.size() == max_residents) residents_.erase(residents_.begin());
    const std::vector<std::int32_t> labels(dataset.labels().begin(), dataset.labels().end());
    residents_.push_back(
        {dataset.id(), cuda::to_device(dataset.pixels(), stream_), cuda::to_device(labels, stream_)});
    return residents_.back();
}

}  // namespace DPTK_NAMESPACE::detail
