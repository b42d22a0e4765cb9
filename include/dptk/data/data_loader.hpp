/// DataLoader makes batches of the samples that a sampler selects, in worker threads, while the program
/// computes with earlier batches. The batches have the sampler's order, whatever the number of workers is.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "dptk/core/config.hpp"
#include "dptk/core/detail/page_lock.hpp"
#include "dptk/core/error.hpp"
#include "dptk/data/batch_sampler.hpp"
#include "dptk/data/collate.hpp"
#include "dptk/data/dataset.hpp"
#include "dptk/data/detail/prefetch_queue.hpp"
#include "dptk/data/distributed_sampler.hpp"
#include "dptk/data/fingerprint.hpp"
#include "dptk/data/image_batch.hpp"
#include "dptk/data/sample_random.hpp"

namespace DPTK_NAMESPACE {

/// How a DataLoader makes batches.
struct DataLoaderOptions {
    std::size_t batch_size = 1;  ///< The number of samples in a batch on each rank.
    bool drop_last = false;      ///< Drop the last batch if a rank cannot fill it.
    /// The number of worker threads of each rank; with 0, the calling thread makes the batches. Default: the
    /// number of cores that this host has for each of its ranks, but at most the batch size, and at most 8.
    std::optional<std::size_t> workers = std::nullopt;
    /// The number of batches that are prepared ahead for each worker.
    std::size_t prefetch_factor = 2;
    /// The transforms of the samples' images, which must be an Image, or the first element of a pair or
    /// tuple. Their random numbers depend on the sampler's seed and epoch and on the sample's index alone.
    ImageTransforms transform = {};
};

/// How far a pass has got, for checkpoints.
struct DataLoaderState {
    SamplerState sampler;           ///< The place in the epoch.
    std::uint64_t fingerprint = 0;  ///< The dataset's fingerprint.

    /// Returns the state as one line of less than 250 characters.
    [[nodiscard]] std::string to_text() const;

    /// Returns the state that to_text() has converted. Throws FormatError for another text.
    [[nodiscard]] static DataLoaderState from_text(std::string_view line);

    friend bool operator==(const DataLoaderState&, const DataLoaderState&) = default;
};

/// A sample could not be read, or a batch of it could not be made.
class DPTK_EXPORT SampleError : public Error {
  public:
    /// Makes an error about the sample `index` of the dataset.
    SampleError(const std::string& message, std::size_t index) : Error(message), index_(index) {}

    /// Returns the index of the sample in the dataset.
    [[nodiscard]] std::size_t index() const noexcept { return index_; }

  private:
    std::size_t index_;
};

namespace detail {

/// The largest number of workers.
inline constexpr std::size_t most_workers = 1024;

/// Returns the number of ranks on this host, according to the launcher's variables.
[[nodiscard]] std::size_t ranks_on_host();

/// Returns the number of worker threads, which by default is at most `useful`. Throws ArgumentError if an
/// option is not valid.
[[nodiscard]] std::size_t worker_count(const DataLoaderOptions& options, std::size_t useful);

/// Throws the exception that is being handled as a SampleError.
[[noreturn]] void rethrow_for_sample(std::size_t index);

/// Ends the work on a batch of a pass that has ended, which nobody takes.
[[noreturn]] void throw_canceled();

/// Throws ArgumentError if the state is not that of a dataset with this fingerprint.
void check_fingerprint(const DataLoaderState& state, std::uint64_t fingerprint);

[[noreturn]] void throw_pass_under_way(std::string_view call);

/// Returns the batches of a sampler of indices.
template <ShardedSampler Sampler>
[[nodiscard]] BatchSampler<Sampler> batches_of(const Sampler& sampler, const DataLoaderOptions& options) {
    return {sampler, options.batch_size, {.drop_last = options.drop_last}};
}

/// Returns a sampler of batches itself.
template <class Sampler>
    requires requires(const Sampler& sampler, std::size_t i) {
        { sampler.size() } -> std::convertible_to<std::size_t>;
        { sampler[i] } -> std::convertible_to<std::vector<std::size_t>>;
    }
[[nodiscard]] const Sampler& batches_of(const Sampler& sampler, const DataLoaderOptions& /*options*/) {
    return sampler;
}

/// Page-locks a tensor, or the tensors of a tuple.
template <class Batch>
void page_lock(Batch& batch, const PageLock& how) {
    if constexpr (requires { batch.page_lock(how); }) {
        batch.page_lock(how);
    } else if constexpr (requires { std::tuple_size<Batch>::value; }) {
        std::apply([&](auto&... element) { (page_lock(element, how), ...); }, batch);
    }
}

template <class Dataset>
using SampleOf = std::remove_cvref_t<decltype(sample_of(std::declval<const Dataset&>(), std::size_t{}))>;

}  // namespace detail

/// A range of batches. Each pass over the range is over the sampler's current epoch:
///
///     dptk::DistributedSampler sampler(dataset, group, {.seed = 7});
///     dptk::DataLoader loader(dataset, sampler, {.batch_size = 32, .workers = 4});
///     for (int epoch = 0; epoch < epochs; ++epoch) {
///         sampler.set_epoch(epoch);
///         for (const auto& batch : loader) step(batch);
///     }
///
/// data/collate.hpp says what a batch is. All ranks have the same number of batches; a rank's last batches
/// may be shorter or empty. A batch is valid until the iterator is incremented, and leaving the loop ends the
/// pass. Only one pass may be under way at a time, and the sampler must not change meanwhile. Dataset and
/// sampler must outlive the loader. Several workers read samples at the same time.
///
/// The sampler may also be a sampler of batches, like `batch_sampler` in PyTorch: sampler[i] is then a
/// std::vector of the indices of batch i, and batch_size and drop_last have no effect. Several workers call
/// sampler[i], which is const and depends on i alone. Without members options() and epoch() as those of
/// DistributedSampler, transforms get other random numbers in each pass of this loader.
///
/// If a sample cannot be read, the iterator throws SampleError when the consumer reaches its batch, and the
/// pass ends.
template <IndexableDataset Dataset, class Sampler,
          class Collation = detail::DefaultCollation<detail::SampleOf<Dataset>>>
class DataLoader {
  public:
    /// The type of a batch.
    using Batch = typename Collation::Batch;
    class Iterator;

    /// Starts the workers. Throws ArgumentError if an option is not valid, and BackendError if the system
    /// cannot start a thread.
    DataLoader(const Dataset& dataset, Sampler& sampler, const DataLoaderOptions& options = {})
        requires std::default_initializable<Collation>
        : DataLoader(Collation(), dataset, sampler, options) {}

    /// Makes each batch with `collate(samples)`, whose argument is a `std::span` of the batch's samples.
    /// Several workers call it at the same time.
    template <class Fn>
        requires std::same_as<Collation, detail::CollateByFunction<detail::SampleOf<Dataset>, Fn>>
    DataLoader(const Dataset& dataset, Sampler& sampler, const DataLoaderOptions& options, Fn collate)
        : DataLoader(Collation(std::move(collate)), dataset, sampler, options) {}

    /// Makes batches with `collation`, which several workers use at the same time. Its types are Sample and
    /// Batch, and it has the member `fill(Batch&, count, sample_at) const`, where sample_at(i) returns sample
    /// i of the batch.
    DataLoader(const Dataset& dataset, Sampler& sampler, const DataLoaderOptions& options,
               Collation collation)
        : DataLoader(std::move(collation), dataset, sampler, options) {}

    /// Deleted, since a temporary dataset would be destroyed before the first batch.
    DataLoader(const Dataset&&, Sampler&, const DataLoaderOptions& = {}) = delete;
    template <class Fn>
    DataLoader(const Dataset&&, Sampler&, const DataLoaderOptions&, Fn) = delete;

    DataLoader(const DataLoader&) = delete;
    DataLoader& operator=(const DataLoader&) = delete;

    /// Returns the number of batches in a pass over the current epoch, which is equal on all ranks.
    [[nodiscard]] std::size_t size() const noexcept { return batches_.size(); }

    /// Page-locks the memory of the batches' tensors: see cuda::DeviceLoader, which calls it. Throws
    /// ArgumentError if a pass is under way.
    void page_lock(const detail::PageLock& how) {
        if (is_under_way_) detail::throw_pass_under_way("page_lock()");
        for (Batch& slot : slots_) detail::page_lock(slot, how);
    }

    /// Begins a pass, and blocks until its first batch is made. Throws ArgumentError if a pass is under way.
    [[nodiscard]] Iterator begin() {
        if (is_under_way_) detail::throw_pass_under_way("begin()");
        if constexpr (requires { sampler_.note_pass(); }) sampler_.note_pass();
        ++passes_;
        taken_ = 0;
        epoch_of_pass_ = epoch();
        last_ = size();
        queue_.begin(0, last_);
        is_under_way_ = true;
        Iterator first(*this);
        ++first;
        return first;
    }

    /// Returns the end of each pass.
    [[nodiscard]] std::default_sentinel_t end() const noexcept { return {}; }

    /// Returns the state after the batches that the consumer has received in the last pass over the sampler's
    /// epoch, the current batch included. What the workers have prepared does not count. The first call of
    /// state() or restore() reads the first and the last sample, for the dataset's fingerprint, and throws
    /// what that throws.
    [[nodiscard]] DataLoaderState state() const
        requires requires(const Sampler& sampler) { sampler.state(std::size_t{}); }
    {
        const std::size_t taken = epoch() == epoch_of_pass_ ? taken_ : 0;
        return {sampler_.state(taken * batches_.batch_size()), fingerprint()};
    }

    /// Continues the epoch of a state: the next pass has the batches that are left. Must be called with the
    /// same state on all ranks. Throws ArgumentError during a pass, or if the state is that of another
    /// dataset or sampler.
    void restore(const DataLoaderState& state)
        requires requires(Sampler& sampler) { sampler.restore(SamplerState{}); }
    {
        if (is_under_way_) detail::throw_pass_under_way("restore()");
        detail::check_fingerprint(state, fingerprint());
        sampler_.restore(state.sampler);
        taken_ = 0;
    }

  private:
    DataLoader(Collation collation, const Dataset& dataset, Sampler& sampler,
               const DataLoaderOptions& options)
        : DataLoader(std::move(collation), dataset, sampler, options,
                     detail::worker_count(options, ShardedSampler<Sampler> ? options.batch_size : 8)) {}

    DataLoader(Collation collation, const Dataset& dataset, Sampler& sampler,
               const DataLoaderOptions& options, std::size_t workers)
        : dataset_(dataset),
          sampler_(sampler),
          collation_(std::move(collation)),
          transforms_(options.transform),
          batches_(detail::batches_of(std::as_const(sampler), options)),
          slots_(workers * options.prefetch_factor + 1),
          indices_(slots_.size()),
          queue_(workers, slots_.size(),
                 [this](std::size_t batch, std::size_t slot) { fill(batch, slots_[slot], indices_[slot]); }) {
        detail::check_transforms(transforms_, detail::has_image<detail::SampleOf<Dataset>>,
                                 std::is_same_v<typename Collation::Sample, detail::SampleOf<Dataset>>);
    }

    /// Makes one batch. Called by the workers.
    void fill(std::size_t index, Batch& batch, std::vector<std::size_t>& indices) const {
        if constexpr (requires { batches_.read(index, indices); }) {
            batches_.read(index, indices);
        } else {
            indices = batches_[index];
        }
        std::size_t current = 0;
        try {
            collation_.fill(batch, indices.size(), [&](std::size_t i) -> decltype(auto) {
                current = indices[i];
                if (queue_.is_canceled()) detail::throw_canceled();
                if constexpr (detail::has_image<detail::SampleOf<Dataset>>) {
                    return detail::transformed<typename Collation::Sample>(sample_of(dataset_, current),
                                                                           transforms_, random_of(current));
                } else {
                    return sample_of(dataset_, current);
                }
            });
        } catch (...) {
            detail::rethrow_for_sample(current);
        }
    }

    /// Returns the sampler's epoch; 0 if it has none.
    [[nodiscard]] std::int64_t epoch() const noexcept {
        if constexpr (requires { sampler_.epoch(); }) return sampler_.epoch();
        return 0;
    }

    [[nodiscard]] std::uint64_t fingerprint() const {
        if (!fingerprint_) fingerprint_ = dataset_fingerprint(dataset_);
        return *fingerprint_;
    }

    /// Returns the random numbers for a sample's transforms.
    [[nodiscard]] SampleRandom random_of(std::size_t index) const noexcept {
        if constexpr (requires { SampleRandom(sampler_.options().seed, sampler_.epoch(), index); }) {
            return {sampler_.options().seed, sampler_.epoch(), index};
        } else {
            return {0, passes_, index};
        }
    }

    /// Makes the next batch the current one. Returns false, and ends the pass, after the last one.
    [[nodiscard]] bool advance() {
        if (taken_ == last_) {
            end_pass();
            return false;
        }
        try {
            current_ = queue_.next();
        } catch (...) {
            end_pass();
            throw;
        }
        ++taken_;
        return true;
    }

    void end_pass() noexcept {
        queue_.cancel();
        is_under_way_ = false;
    }

    const Dataset& dataset_;
    Sampler& sampler_;
    Collation collation_;
    ImageTransforms transforms_;
    mutable std::optional<std::uint64_t> fingerprint_;
    decltype(detail::batches_of(std::declval<const Sampler&>(), DataLoaderOptions())) batches_;
    bool is_under_way_ = false;
    std::int64_t passes_ = 0;
    std::int64_t epoch_of_pass_ = 0;
    std::size_t taken_ = 0;    // batches that the consumer has received in the last pass
    std::size_t last_ = 0;     // the number of batches in this pass
    std::size_t current_ = 0;  // the slot of the current batch
    std::vector<Batch> slots_;
    std::vector<std::vector<std::size_t>> indices_;  // by slot
    detail::PrefetchQueue queue_;                    // the last member, since its threads use the others
};

/// Deduces the type of the batches from the collate function.
template <class Dataset, class Sampler, class Fn>
    requires std::invocable<const Fn&, std::span<detail::SampleOf<Dataset>>>
DataLoader(const Dataset&, Sampler&, DataLoaderOptions, Fn)
    -> DataLoader<Dataset, Sampler, detail::CollateByFunction<detail::SampleOf<Dataset>, Fn>>;

/// Deduces the type of the batches from the collation object.
template <class Dataset, class Sampler, class Collation>
    requires requires { typename Collation::Batch; }
DataLoader(const Dataset&, Sampler&, DataLoaderOptions, Collation) -> DataLoader<Dataset, Sampler, Collation>;

/// An input iterator over the batches of one pass. Destroying it ends the pass. Must not outlive the loader.
template <IndexableDataset Dataset, class Sampler, class Collation>
class DataLoader<Dataset, Sampler, Collation>::Iterator {
  public:
    using value_type = Batch;
    using difference_type = std::ptrdiff_t;
    using iterator_concept = std::input_iterator_tag;

    Iterator(Iterator&& other) noexcept : loader_(std::exchange(other.loader_, nullptr)) {}
    Iterator& operator=(Iterator&& other) noexcept {
        std::swap(loader_, other.loader_);
        return *this;
    }
    ~Iterator() {
        if (loader_ != nullptr) loader_->end_pass();
    }

    /// Returns the current batch, which is valid until the next increment.
    [[nodiscard]] const Batch& operator*() const noexcept { return loader_->slots_[loader_->current_]; }

    /// Blocks until the next batch is made. Throws SampleError, and ends the pass, if a sample of this batch
    /// cannot be read.
    Iterator& operator++() {
        DataLoader* const loader = std::exchange(loader_, nullptr);
        if (loader->advance()) loader_ = loader;
        return *this;
    }

    void operator++(int) { ++*this; }

    friend bool operator==(const Iterator& it, std::default_sentinel_t) noexcept {
        return it.loader_ == nullptr;
    }

  private:
    friend class DataLoader;

    explicit Iterator(DataLoader& loader) noexcept : loader_(&loader) {}

    DataLoader* loader_;
};

}  // namespace DPTK_NAMESPACE

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/data/data_loader.ipp"
#endif
