/// Batches of images on their way to a GPU, and there as a network takes them.
#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "dptk/core/config.hpp"
#include "dptk/core/cuda/copy.hpp"
#include "dptk/core/cuda/event.hpp"
#include "dptk/core/cuda/memory.hpp"
#include "dptk/core/cuda/stream.hpp"
#include "dptk/data/image_dataset.hpp"
#include "dptk/nn/cuda/tensor.hpp"
#include "dptk/nn/tensor.hpp"
#include "dptk/train/trainer_options.hpp"

namespace DPTK_NAMESPACE::detail {

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
    DeviceBatches(nn::Shape image, const TrainerOptions& options, StreamRef stream);

    /// Puts the images `indices`, at most a batch, on the stream. Blocks where the dataset is copied to the
    /// device for that, and otherwise as StagedUploads does. Throws ArgumentError for images of another shape
    /// than the network's input.
    void load(const ImageDataset& dataset, std::span<const std::size_t> indices);

    /// [n, channels, height, width]
    [[nodiscard]] const nn::DeviceTensor<float>& images() const noexcept { return images_; }

    /// n of them.
    [[nodiscard]] DeviceSpan<const std::uint8_t> labels() const;

  private:
    /// A dataset on the device.
    struct Resident {
        std::uint64_t id;
        cuda::DeviceBuffer<std::uint8_t> pixels;
        cuda::DeviceBuffer<std::uint8_t> labels;
    };
    /// One to train on, and one to test with.
    static constexpr std::size_t most_residents = 2;

    void check(const ImageDataset& dataset) const;

    [[nodiscard]] std::size_t pixels_per_image() const { return nn::element_count(image_); }

    /// For a full batch at once, so that addresses stay.
    void make_room();

    /// Pixels, and the labels behind them.
    void send_images(const ImageDataset& dataset, std::span<const std::size_t> indices);

    void send_indices(const Resident& dataset, std::span<const std::size_t> indices);

    void make_batch(const std::uint8_t* pixels, const std::uint8_t* labels, const std::uint32_t* indices);

    /// The last one used stands last.
    [[nodiscard]] const Resident& resident(const ImageDataset& dataset);

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

}  // namespace DPTK_NAMESPACE::detail

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/train/detail/cuda/batches.ipp"
#endif
