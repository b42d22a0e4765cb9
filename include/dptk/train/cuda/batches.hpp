/// Batches of images on their way to a GPU, and there as a network takes them.
#pragma once

#include <algorithm>
#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "dptk/core/cuda/copy.hpp"
#include "dptk/core/cuda/event.hpp"
#include "dptk/core/cuda/memory.hpp"
#include "dptk/core/cuda/stream.hpp"
#include "dptk/core/error.hpp"
#include "dptk/core/text.hpp"
#include "dptk/data/image_dataset.hpp"
#include "dptk/nn/cuda/kernels.hpp"
#include "dptk/nn/cuda/tensor.hpp"
#include "dptk/nn/tensor.hpp"
#include "dptk/train/trainer_options.hpp"

namespace dptk::detail {

/// Sends elements to the current device, in a stream of its own: while the ones are used there, the next ones
/// are written on the host and copied.
template <class T>
class StagedUploads {
  public:
    explicit StagedUploads(std::size_t capacity) {
        for (Place& place : places_) {
            place.host = cuda::PinnedBuffer<T>(capacity);
            place.device = cuda::DeviceBuffer<T>(capacity);
        }
    }

    /// Calls `fill(std::span<T>)`, which writes `count` elements, up to the capacity; then `use(const T*)`,
    /// which puts the work that reads them from the device on `stream`. The host waits only where the copy of
    /// the elements before the last is not done.
    template <std::invocable<std::span<T>> Fill, std::invocable<const T*> Use>
    void send(std::size_t count, StreamRef stream, Fill&& fill, Use&& use) {
        Place& place = places_[turn_++ % places_.size()];
        place.copied.synchronize();
        std::forward<Fill>(fill)(std::span(place.host.data(), count));
        place.used.order_before(copies_);
        cuda::detail::copy_bytes(place.device.data(), place.host.data(), count * sizeof(T), copies_);
        place.copied.record(copies_);
        place.copied.order_before(stream);
        std::forward<Use>(use)(place.device.data());
        place.used.record(stream);
    }

  private:
    /// Events that were never recorded let everybody pass. The device's memory ends first, which waits for
    /// the copies from the host's.
    struct Place {
        cuda::Event copied;
        cuda::Event used;
        cuda::PinnedBuffer<T> host;
        cuda::DeviceBuffer<T> device;
    };

    cuda::Stream copies_;
    std::array<Place, 2> places_;
    std::size_t turn_ = 0;
};

/// One batch at a time, at addresses that stay.
class DeviceBatches {
  public:
    /// `image`: the shape of the network's input. Work that others wait for goes on `stream`.
    DeviceBatches(nn::Shape image, const TrainerOptions& options, StreamRef stream)
        : image_(std::move(image)),
          batch_size_(options.batch_size),
          scale_(static_cast<float>(options.pixel_scale)),
          keeps_datasets_(options.data_on_device),
          stream_(stream) {}

    /// Puts the images `indices`, at most a batch, on the stream. Blocks where the dataset is copied to the
    /// device for that, and otherwise as StagedUploads does. Throws ArgumentError for images of another shape
    /// than the network's input.
    void load(const ImageDataset& dataset, std::span<const std::size_t> indices) {
        check(dataset);
        make_room();
        images_.resize(indices.size(), image_);
        if (keeps_datasets_) {
            send_indices(resident(dataset), indices);
        } else {
            send_images(dataset, indices);
        }
    }

    /// [n, channels, height, width]
    [[nodiscard]] const nn::DeviceTensor<float>& images() const noexcept { return images_; }

    /// n of them.
    [[nodiscard]] DeviceSpan<const std::uint8_t> labels() const {
        return std::as_const(labels_).span().subspan(0, images_.shape()[0]);
    }

  private:
    /// A dataset on the device.
    struct Resident {
        std::uint64_t id;
        cuda::DeviceBuffer<std::uint8_t> pixels;
        cuda::DeviceBuffer<std::uint8_t> labels;
    };
    /// One to train on, and one to test with.
    static constexpr std::size_t most_residents = 2;

    void check(const ImageDataset& dataset) const {
        const nn::Shape found = {dataset.channels(), dataset.height(), dataset.width()};
        if (found == image_) return;
        throw ArgumentError(text("Trainer: the dataset has images of shape ", shape_text(found),
                                 ", and the network's input is ", shape_text(image_)));
    }

    [[nodiscard]] std::size_t pixels_per_image() const { return nn::element_count(image_); }

    /// For a full batch at once, so that addresses stay.
    void make_room() {
        if (labels_.size() > 0) return;
        images_.resize(batch_size_, image_);
        if (keeps_datasets_) {
            indices_.emplace(batch_size_);
        } else {
            bytes_.emplace(batch_size_ * (pixels_per_image() + 1));
        }
        labels_ = cuda::DeviceBuffer<std::uint8_t>(batch_size_);
    }

    /// Pixels, and the labels behind them.
    void send_images(const ImageDataset& dataset, std::span<const std::size_t> indices) {
        const std::size_t pixels = indices.size() * pixels_per_image();
        const auto fill = [&](std::span<std::uint8_t> bytes) {
            auto pixel = bytes.begin();
            auto label = bytes.begin() + static_cast<std::ptrdiff_t>(pixels);
            for (const std::size_t index : indices) {
                const LabelledImageRef image = dataset[index];
                pixel = std::ranges::copy(image.pixels, pixel).out;
                *label++ = image.label;
            }
        };
        bytes_->send(pixels + indices.size(), stream_, fill,
                     [&](const std::uint8_t* bytes) { make_batch(bytes, bytes + pixels, nullptr); });
    }

    void send_indices(const Resident& dataset, std::span<const std::size_t> indices) {
        const auto fill = [&](std::span<std::uint32_t> places) {
            std::ranges::transform(indices, places.begin(),
                                   [](std::size_t index) { return static_cast<std::uint32_t>(index); });
        };
        indices_->send(indices.size(), stream_, fill, [&](const std::uint32_t* places) {
            make_batch(dataset.pixels.data(), dataset.labels.data(), places);
        });
    }

    void make_batch(const std::uint8_t* pixels, const std::uint8_t* labels, const std::uint32_t* indices) {
        nn::cuda::kernels::load_images(pixels, labels, indices, images_.shape()[0], pixels_per_image(),
                                       scale_, images_.data(), labels_.data(), stream_);
    }

    /// The last one used stands last.
    [[nodiscard]] const Resident& resident(const ImageDataset& dataset) {
        const auto found = std::ranges::find(residents_, dataset.id(), &Resident::id);
        if (found != residents_.end()) {
            std::rotate(found, found + 1, residents_.end());
            return residents_.back();
        }
        if (dataset.size() > std::numeric_limits<std::uint32_t>::max())
            throw ArgumentError(
                text("Trainer: data_on_device is for up to 2^32 - 1 images, not ", dataset.size()));
        if (residents_.size() == most_residents) residents_.erase(residents_.begin());
        residents_.push_back({dataset.id(), cuda::to_device(dataset.pixels(), stream_),
                              cuda::to_device(dataset.labels(), stream_)});
        return residents_.back();
    }

    nn::Shape image_;
    std::size_t batch_size_;
    float scale_;
    bool keeps_datasets_;
    StreamRef stream_;
    nn::DeviceTensor<float> images_;
    cuda::DeviceBuffer<std::uint8_t> labels_;
    std::optional<StagedUploads<std::uint8_t>> bytes_;  // one of the two
    std::optional<StagedUploads<std::uint32_t>> indices_;
    std::vector<Resident> residents_;
};

}  // namespace dptk::detail
