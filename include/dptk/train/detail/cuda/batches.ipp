#pragma once

#include "dptk/train/detail/cuda/batches.hpp"

#include <algorithm>
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
      keeps_datasets_(options.data_on_device),
      stream_(stream) {}

DPTK_INLINE void DeviceBatches::load(const ImageDataset& dataset, std::span<const std::size_t> indices) {
    check(dataset);
    make_room();
    images_.resize(indices.size(), image_);
    if (keeps_datasets_) {
        send_indices(resident(dataset), indices);
    } else {
        send_images(dataset, indices);
    }
}

DPTK_INLINE DeviceSpan<const std::uint8_t> DeviceBatches::labels() const {
    return std::as_const(labels_).span().subspan(0, images_.shape()[0]);
}

DPTK_INLINE void DeviceBatches::check(const ImageDataset& dataset) const {
    const nn::Shape found = {dataset.channels(), dataset.height(), dataset.width()};
    if (found == image_) return;
    throw ArgumentError(text("Trainer: expected images of shape ", shape_text(image_),
                             ", the network's input, got ", shape_text(found)));
}

DPTK_INLINE void DeviceBatches::make_room() {
    if (labels_.size() > 0) return;
    images_.resize(batch_size_, image_);
    if (keeps_datasets_) {
        indices_.emplace(batch_size_);
    } else {
        bytes_.emplace(batch_size_ * (pixels_per_image() + 1));
    }
    labels_ = cuda::DeviceBuffer<std::uint8_t>(batch_size_);
}

DPTK_INLINE void DeviceBatches::send_images(const ImageDataset& dataset,
                                            std::span<const std::size_t> indices) {
    const std::size_t pixels = indices.size() * pixels_per_image();
    const auto fill = [&](std::span<std::uint8_t> bytes) {
        auto pixel = bytes.begin();
        auto label = bytes.begin() + static_cast<std::ptrdiff_t>(pixels);
        for (const std::size_t index : indices) {
            const LabeledImageRef image = dataset[index];
            pixel = dptk::detail::copy(image.pixels, pixel);
            *label++ = image.label;
        }
    };
    bytes_->send(pixels + indices.size(), stream_, fill,
                 [&](const std::uint8_t* bytes) { make_batch(bytes, bytes + pixels, nullptr); });
}

DPTK_INLINE void DeviceBatches::send_indices(const Resident& dataset, std::span<const std::size_t> indices) {
    const auto fill = [&](std::span<std::uint32_t> places) {
        std::transform(indices.begin(), indices.end(), places.begin(),
                       [](std::size_t index) { return static_cast<std::uint32_t>(index); });
    };
    indices_->send(indices.size(), stream_, fill, [&](const std::uint32_t* places) {
        make_batch(dataset.pixels.data(), dataset.labels.data(), places);
    });
}

DPTK_INLINE void DeviceBatches::make_batch(const std::uint8_t* pixels, const std::uint8_t* labels,
                                           const std::uint32_t* indices) {
    nn::cuda::kernels::load_images(pixels, labels, indices, images_.shape()[0], pixels_per_image(), scale_,
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
    residents_.push_back({dataset.id(), cuda::to_device(dataset.pixels(), stream_),
                          cuda::to_device(dataset.labels(), stream_)});
    return residents_.back();
}

}  // namespace DPTK_NAMESPACE::detail
