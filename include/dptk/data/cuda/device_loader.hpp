/// DeviceLoader copies the batches of a DataLoader to a GPU, while the GPU computes with earlier ones.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <iterator>
#include <span>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "dptk/core/config.hpp"
#include "dptk/core/cuda/copy.hpp"
#include "dptk/core/cuda/detail/page_lock.hpp"
#include "dptk/core/cuda/event.hpp"
#include "dptk/core/cuda/memory.hpp"
#include "dptk/core/cuda/stream.hpp"
#include "dptk/core/cuda/tensor.hpp"
#include "dptk/core/stream_ref.hpp"
#include "dptk/core/tensor.hpp"
#include "dptk/data/collate.hpp"

namespace DPTK_NAMESPACE::cuda {

namespace detail {

/// What a batch becomes on a device. A batch that is not a tensor, a vector of numbers, or a tuple of these
/// is an error when compiled.
template <class Batch>
struct OnDevice {
    static_assert(
        !std::is_same_v<Batch, Batch>,
        "dptk: DeviceLoader copies batches that are tensors, vectors of numbers, or tuples of these");
};
template <class T>
struct OnDevice<Tensor<T>> {
    using type = DeviceTensor<T>;
};
template <dptk::detail::Number T>
struct OnDevice<std::vector<T>> {
    using type = DeviceTensor<T>;
};
template <class... Element>
struct OnDevice<std::tuple<Element...>> {
    using type = std::tuple<typename OnDevice<Element>::type...>;
};

/// The page-locked memory that a copy reads: a tensor's own, or a copy of a vector.
template <class Batch>
struct Staging {
    void copy(const Batch& from, typename OnDevice<Batch>::type& to, StreamRef stream) {
        to.resize(from.shape());
        copy_to_device(from.values(), to.values(), stream);
    }
};
template <class T>
struct Staging<std::vector<T>> {
    PinnedBuffer<T> memory;

    void copy(const std::vector<T>& from, DeviceTensor<T>& to, StreamRef stream) {
        if (from.size() > memory.size()) memory = PinnedBuffer<T>(from.size());
        std::copy(from.begin(), from.end(), memory.begin());
        to.resize(Shape{from.size()});
        copy_to_device(std::span(memory.data(), from.size()), to.values(), stream);
    }
};
template <class... Element>
struct Staging<std::tuple<Element...>> {
    std::tuple<Staging<Element>...> parts;

    void copy(const std::tuple<Element...>& from, typename OnDevice<std::tuple<Element...>>::type& to,
              StreamRef stream) {
        [&]<std::size_t... I>(std::index_sequence<I...>) {
            (std::get<I>(parts).copy(std::get<I>(from), std::get<I>(to), stream), ...);
        }(std::index_sequence_for<Element...>());
    }
};

}  // namespace detail

/// A range of batches on a GPU, in the order of a DataLoader:
///
///     dptk::DataLoader loader(dataset, sampler, {.batch_size = 32, .workers = 4});
///     dptk::cuda::DeviceLoader on_gpu(loader, stream);
///     for (const auto& [pixels, labels] : on_gpu) net.forward_backward(pixels, labels);
///
/// Tensors and vectors of numbers become DeviceTensors. Work that the program enqueues on `stream` before it
/// increments the iterator finds the batch complete and unchanged; work on another stream must be ordered
/// after `stream`, and `stream` after it. Copies run on a stream of their own: tensors from page-locked
/// memory, which the loader's workers fill, vectors from a copy in page-locked memory. For batches of a
/// collate function, begin() and ++ block during the copy. The DataLoader and the stream must outlive this
/// object, and the device that is current at construction must be current in all calls. CUDA's errors are
/// BackendErrors. The DataLoader's memory stays page-locked.
template <class Loader>
class DeviceLoader {
  public:
    /// The type of a batch.
    using Batch = typename detail::OnDevice<typename Loader::Batch>::type;
    class Iterator;

    /// Makes the loader's batches page-locked. Throws ArgumentError if a pass over the loader is under way.
    DeviceLoader(Loader& loader, StreamRef stream) : loader_(loader), stream_(stream) {
        loader.page_lock(detail::page_lock());
    }
    DeviceLoader(const DeviceLoader&) = delete;
    DeviceLoader& operator=(const DeviceLoader&) = delete;

    /// Returns the number of batches in a pass.
    [[nodiscard]] std::size_t size() const { return loader_.size(); }

    /// Begins a pass of the loader, and enqueues the copy of its first batch. Blocks until the batch is made.
    [[nodiscard]] Iterator begin() {
        auto first = loader_.begin();
        if (first != loader_.end()) copy(*first);
        return Iterator(*this, std::move(first));
    }

    /// Returns the end of each pass.
    [[nodiscard]] std::default_sentinel_t end() const noexcept { return {}; }

  private:
    using HostIterator = decltype(std::declval<Loader&>().begin());

    /// One of two batches. Events that were never recorded block nothing.
    struct Place {
        detail::Staging<typename Loader::Batch> staging;
        Batch batch;
        Event copied;
        Event used;
    };

    [[nodiscard]] Place& current() noexcept { return places_[copies_made_ % places_.size()]; }

    /// Enqueues the copy of a batch, after the program's work with the batch that it replaces.
    void copy(const typename Loader::Batch& batch) {
        ++copies_made_;
        Place& place = current();
        place.used.order_before(copies_);
        place.staging.copy(batch, place.batch, copies_);
        place.copied.record(copies_);
        place.copied.order_before(stream_);
    }

    /// Ends a pass early: waits until the loader's memory is no longer read. Errors are sticky, so that the
    /// next CUDA call returns them.
    void leave() noexcept {
        static_cast<void>(cudaEventRecord(current().used.get(), stream_.get()));
        if (!detail::is_any_stuck()) static_cast<void>(cudaEventSynchronize(current().copied.get()));
    }

    void advance(HostIterator& place) {
        current().used.record(stream_);
        current().copied.synchronize();  // the loader may now reuse the memory
        ++place;
        if (place != loader_.end()) copy(*place);
    }

    Loader& loader_;
    StreamRef stream_;
    std::array<Place, 2> places_;
    std::size_t copies_made_ = 0;
    Stream copies_;
};

/// An input iterator over the batches of one pass. Destroying it early ends the pass, and blocks until the
/// copy of the current batch is done. Must not outlive the DeviceLoader.
template <class Loader>
class DeviceLoader<Loader>::Iterator {
  public:
    using value_type = Batch;
    using difference_type = std::ptrdiff_t;
    using iterator_concept = std::input_iterator_tag;

    Iterator(Iterator&& other) noexcept = default;
    Iterator& operator=(Iterator&& other) noexcept = default;
    ~Iterator() {
        if (place_ != std::default_sentinel) loader_->leave();
    }

    /// Returns the current batch, for work on the stream.
    [[nodiscard]] const Batch& operator*() const noexcept { return loader_->current().batch; }

    /// Enqueues the copy of the next batch. Blocks until the copy of the current one is done and the next one
    /// is made. Throws what the DataLoader throws.
    Iterator& operator++() {
        loader_->advance(place_);
        return *this;
    }

    void operator++(int) { ++*this; }

    friend bool operator==(const Iterator& it, std::default_sentinel_t end) noexcept {
        return it.place_ == end;
    }

  private:
    friend class DeviceLoader;

    Iterator(DeviceLoader& loader, HostIterator place) noexcept
        : loader_(&loader), place_(std::move(place)) {}

    DeviceLoader* loader_;
    HostIterator place_;
};

}  // namespace DPTK_NAMESPACE::cuda
