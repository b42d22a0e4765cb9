/// DeviceBatches assembles batches in GPU memory, from batches in host memory or from the datasets' copies on
/// the device.
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
#include "dptk/core/cuda/tensor.hpp"
#include "dptk/core/tensor.hpp"
#include "dptk/data/image_dataset.hpp"
#include "dptk/train/detail/labeled_batch.hpp"
#include "dptk/train/trainer_options.hpp"

namespace DPTK_NAMESPACE::detail {

/// Uploads elements to the current device, double-buffered on a stream of its own: while one batch is used
/// on the device, the host writes and copies the next.
template <class T>
class StagedUploads {
  public:
    explicit StagedUploads(std::size_t capacity) {
        for (Place& place : places_) {
            place.host = cuda::PinnedBuffer<T>(capacity);
            place.device = cuda::DeviceBuffer<T>(capacity);
        }
    }

    /// Calls `fill(std::span<T>)`, which writes `count` elements, at most the capacity. Then calls `use(const
    /// T*)`, which enqueues work on `stream` that reads the elements from device memory. The host waits only
    /// if the last but one upload is not done.
    template <std::invocable<std::span<T>> Fill, std::invocable<const T*> Use>
    void send(std::size_t count, StreamRef stream, Fill&& fill, Use&& use) {
        Place& place = places_[next_place_++ % places_.size()];
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
    /// One of the two buffers. Events that were never recorded block neither the host nor a stream. `device`
    /// is destroyed first, as the last member, which blocks until the copies from `host` are done.
    struct Place {
        cuda::Event copied;
        cuda::Event used;
        cuda::PinnedBuffer<T> host;
        cuda::DeviceBuffer<T> device;
    };

    cuda::Stream copies_;
    std::array<Place, 2> places_;
    std::size_t next_place_ = 0;
};

/// Holds one batch at a time, at addresses that do not change after the first load().
class DeviceBatches {
  public:
    /// `image` is the shape of the network's input. Work that is enqueued on `stream` after load() reads the
    /// complete batch.
    DeviceBatches(nn::Shape image, const TrainerOptions& options, StreamRef stream);

    /// Enqueues loading of a batch of at most batch_size samples on the stream: pixels, which are scaled on
    /// the device, or other values. Blocks only as StagedUploads::send() does.
    void load(const LabeledBatch<std::uint8_t>& batch);
    void load(const LabeledBatch<float>& batch);

    /// Enqueues loading of the images `indices`, at most batch_size of them, on the stream. Blocks if the
    /// dataset must first be copied to the device, and otherwise only as StagedUploads::send() does.
    void load(const ImageDataset& dataset, std::span<const std::size_t> indices);

    /// Returns the images, of shape [n, channels, height, width].
    [[nodiscard]] const nn::DeviceTensor<float>& images() const noexcept { return images_; }

    /// Returns the n labels.
    [[nodiscard]] DeviceSpan<const std::int32_t> labels() const;

  private:
    /// A dataset in device memory.
    struct Resident {
        std::uint64_t id;
        cuda::DeviceBuffer<std::uint8_t> pixels;
        cuda::DeviceBuffer<std::int32_t> labels;
    };
    /// One dataset to train on, and one to test on.
    static constexpr std::size_t max_residents = 2;

    [[nodiscard]] std::size_t values_per_sample() const { return element_count(image_); }

    /// Makes room for `count` samples, and the first time for a full batch, so that addresses do not change
    /// later.
    void make_room(std::size_t count);

    /// Uploads the labels, followed by the values. Then calls `use(values, labels)` with their addresses on
    /// the device.
    template <class Value, class Use>
    void send(const LabeledBatch<Value>& batch, Use&& use);

    void make_batch(const std::uint8_t* pixels, const std::int32_t* labels, const std::uint32_t* indices);

    /// Returns the dataset's copy on the device, and makes the copy first if necessary. residents_ is sorted
    /// by the time of last use; the most recent is at the end.
    [[nodiscard]] const Resident& resident(const ImageDataset& dataset);

    nn::Shape image_;
    std::size_t batch_size_;
    float scale_;
    StreamRef stream_;
    nn::DeviceTensor<float> images_;
    cuda::DeviceBuffer<std::int32_t> labels_;
    std::size_t bytes_per_sample_ = 0;               // those for which there is room in bytes_
    std::optional<StagedUploads<std::byte>> bytes_;  // either bytes_ or indices_ is used
    std::optional<StagedUploads<std::uint32_t>> indices_;
    std::vector<Resident> residents_;
};

}  // namespace DPTK_NAMESPACE::detail

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/train/detail/cuda/batches.ipp"
#endif
