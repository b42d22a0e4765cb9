/// Trainer, the training loop of an image classifier on dptk's own networks: it combines sampler, DDP (or
/// ReproducibleDataParallel), loss and SGD. With DDP, gradients are computed directly in its buckets. Loss,
/// accuracy and sample counts are over all ranks, with each sample counted once; times are this rank's.
/// TrainerComputation has the parts that differ between host memory and GPUs.
#pragma once

#include <algorithm>
#include <chrono>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "dptk/comm/agreement.hpp"
#include "dptk/comm/process_group.hpp"
#include "dptk/core/config.hpp"
#include "dptk/core/trace.hpp"
#include "dptk/data/data_loader.hpp"
#include "dptk/data/dataset.hpp"
#include "dptk/data/distributed_sampler.hpp"
#include "dptk/data/image_dataset.hpp"
#include "dptk/ddp/distributed_data_parallel.hpp"
#include "dptk/ddp/reproducible.hpp"
#include "dptk/nn/agree_on_layouts.hpp"
#include "dptk/nn/network.hpp"
#include "dptk/train/detail/host_computation.hpp"
#include "dptk/train/detail/labeled_batch.hpp"
#include "dptk/train/detail/shard_batches.hpp"
#include "dptk/train/progress.hpp"
#include "dptk/train/trainer_options.hpp"

namespace DPTK_NAMESPACE {

/// The result of a pass over a dataset.
struct EpochResult {
    double loss = 0;          ///< The mean over the samples.
    double accuracy = 0;      ///< The fraction of samples whose largest logit is that of their label.
    std::size_t samples = 0;  ///< The number of samples, over all ranks.
    double seconds = 0;       ///< The duration, by this rank's clock.
};

/// Trains a network on this rank's share of a dataset, and evaluates it.
template <nn::NetworkBackend Backend>
class Trainer {
  public:
    using Scalar = typename Backend::Scalar;  ///< The element type of the network.

    /// Broadcasts rank 0's parameters to all ranks. Collective. Group and network must outlive the trainer,
    /// and the network's GPU must be the current device in all calls. Throws the exceptions of
    /// DistributedDataParallel, ReproducibleDataParallel and SGD. Throws ArgumentError on all ranks for a
    /// batch size of 0, fewer than 1 epoch, a comm hook together with reproducible shards, or options that
    /// the network's backend does not support, and MismatchError on all ranks if options differ between
    /// ranks.
    Trainer(ProcessGroup& group, nn::Network<Backend>& net, TrainerOptions options)
        : group_(group), options_(std::move(options)), computation_(net, options_) {
        check_options();
        nn::agree_on_layouts(group, net);
        if (group.size() > 1) net.set_group(group, {.weighs_by_samples = true});
        if (options_.reproducible_shards > 0)
            reproducible_.emplace(group, ParameterSource(net), options_.reproducible_shards);
        const std::size_t shards = reproducible_ ? reproducible_->shards().size() : 1;
        for (std::size_t i = 0; i < shards; ++i) {
            training_.push_back(computation_.make_totals());
            evaluation_.push_back(computation_.make_totals());
        }
        if (reproducible_) return;
        ddp_.emplace(group, net, computation_.ddp_options(options_.ready));
        has_buffers_ = !net.graph().buffers().empty();
        is_synchronized_ = net.graph().has_synchronized_batch_norms();
        ddp_->set_comm_hook(options_.comm_hook);
        computation_.put_gradients_into(*ddp_);
    }

    /// Trains one epoch with SGD, in the sample order that (seed, epoch) determines, with at most
    /// batch_size samples per step and rank (or shard). Calls `on_progress` on all ranks at regular
    /// intervals, 20 to 39 times, or after each step if the epoch has fewer than 20. Collective. With a GPU,
    /// the host waits for the GPU only before it calls `on_progress`, in the first step of each batch size,
    /// and if the GPU has not yet loaded the previous batches.
    ///
    /// A sample is that of an ImageDataset, or a pair or tuple that begins with an Image or a contiguous
    /// range of numbers, and the sample's label, of an integer type.
    ///
    /// Throws MismatchError on all ranks if the dataset's size differs between ranks, ArgumentError on all
    /// ranks if its images do not have the shape of the network's input, and Error on all ranks if the loss
    /// is no longer finite. Throws SampleError if a sample cannot be read, its values do not have the shape
    /// of the network's input, or its label is not one of the network's classes.
    template <IndexableDataset Dataset>
    EpochResult train_epoch(const Dataset& dataset, int epoch,
                            const std::function<void(const TrainingProgress&)>& on_progress = {}) {
        const detail::PurposeScope here(group_.channel(), {.call = "train_epoch()", .owner = "Trainer"});
        check(dataset);
        const detail::ShardBatches indices(
            own_samplers(dataset.size(), {.seed = options_.seed, .padding = Padding::none}, epoch),
            options_.batch_size);
        Batches<Dataset> batches(computation_, dataset, indices, loader_options<Dataset>(options_.transform));
        const std::size_t steps = indices.steps();
        const std::size_t interval = std::max<std::size_t>(steps / 20, 1);
        const auto begin = std::chrono::steady_clock::now();
        for (Totals& totals : training_) totals.reset();
        computation_.drop_stale_graph(group_);
        EpochResult result;
        for (std::size_t done = 1; done <= steps; ++done) {
            step(batches, indices, done - 1);
            if (done % interval != 0 && done != steps) continue;
            result = over_all_ranks(training_, begin);
            if (done == steps && ddp_) computation_.check(*ddp_);
            check_finite(result.loss, epoch);
            if (on_progress) on_progress(progress(result, epoch, done, steps));
            computation_.drop_stale_graph(group_);  // on_progress may have evaluated with other batch sizes
        }
        return result;
    }

    /// Returns loss and accuracy over the dataset, with each sample counted once, in nn::Mode::evaluate. If
    /// the network has buffers, first sends rank 0's values and buffers to all ranks. Collective. Throws
    /// MismatchError on all ranks if the dataset's size differs between ranks.
    template <IndexableDataset Dataset>
    EpochResult evaluate(const Dataset& dataset) {
        const detail::PurposeScope here(group_.channel(), {.call = "evaluate()", .owner = "Trainer"});
        check(dataset);
        const detail::ShardBatches indices(
            own_samplers(dataset.size(), {.shuffle = false, .padding = Padding::none}, 0),
            options_.batch_size);
        const auto begin = std::chrono::steady_clock::now();
        if (has_buffers_) ddp_->broadcast_values(0);
        const ModeScope mode(computation_, nn::Mode::evaluate);
        Batches<Dataset> batches(computation_, dataset, indices,
                                 loader_options<Dataset>(options_.evaluation_transform));
        for (Totals& totals : evaluation_) totals.reset();
        for (std::size_t i = 0; i < indices.size(); ++i) {
            if (load_next(batches) > 0) forward(evaluation_[i % indices.shards()]);
        }
        return over_all_ranks(evaluation_, begin);
    }

    /// Returns the parameters, for hashes and checkpoints.
    [[nodiscard]] const std::vector<ParameterRef>& parameters() const noexcept {
        return reproducible_ ? reproducible_->parameters() : ddp_->parameters();
    }

  private:
    using Computation = detail::TrainerComputation<Backend>;
    template <class Dataset>
    using Batches = typename Computation::template Batches<Dataset>;
    /// Sums over the samples of a shard, in the backend's memory.
    using Totals = typename Computation::Totals;

    /// Throws on all ranks if the options of any rank are invalid or differ between ranks. Collective.
    void check_options() {
        std::string problem;
        if (options_.batch_size == 0) {
            problem = "Trainer: batch_size must be at least 1, got 0";
        } else if (options_.epochs < 1) {
            problem = detail::text("Trainer: epochs must be at least 1, got ", options_.epochs);
        } else if (options_.comm_hook && options_.reproducible_shards > 0) {
            problem = "Trainer: comm_hook and reproducible_shards cannot be combined; set only one of them";
        } else if (options_.workers.value_or(0) > detail::most_workers) {
            problem = detail::text("Trainer: workers must be at most ", detail::most_workers, ", got ",
                                   *options_.workers);
        } else {
            problem = computation_.problem(options_);
        }
        detail::check_no_problem<ArgumentError>(group_, problem);
        detail::check_equal_tables(
            group_, "TrainerOptions",
            detail::text("epochs ", options_.epochs, "\nbatch_size ", options_.batch_size, "\nseed ",
                         options_.seed, "\nlr ", options_.sgd.lr, "\nmomentum ", options_.sgd.momentum,
                         "\nweight_decay ", options_.sgd.weight_decay, "\ndampening ", options_.sgd.dampening,
                         "\nnesterov ", options_.sgd.nesterov, "\npixel_scale ", options_.pixel_scale,
                         "\nreproducible_shards ", options_.reproducible_shards, "\ncuda_graph ",
                         options_.cuda_graph));
    }

    /// Throws MismatchError on all ranks if the dataset's size differs between ranks, since the ranks would
    /// then make different numbers of steps. Collective.
    template <class Dataset>
    void check(const Dataset& dataset) {
        static_assert(detail::LabeledSample<detail::LoadedSample<Dataset>>,
                      "dptk: the samples of a Trainer's dataset are pairs of an Image or a contiguous range "
                      "of numbers, and a label of an integer type; dptk::Map converts other samples");
        detail::check_no_problem<ArgumentError>(group_, computation_.problem_of(dataset));
        detail::check_equal_tables(group_, "datasets", detail::text("samples ", dataset.size()));
    }

    template <class Dataset>
    [[nodiscard]] DataLoaderOptions loader_options(const ImageTransforms& transform) const {
        DataLoaderOptions options{.batch_size = options_.batch_size, .workers = options_.workers};
        if constexpr (std::same_as<Dataset, ImageDataset>) options.workers = options_.workers.value_or(0);
        options.transform = transform;
        return options;
    }

    /// Returns the samplers of this rank's share of the epoch's samples: one sampler, or with reproducible
    /// shards one for each of this rank's shards.
    [[nodiscard]] std::vector<DistributedSampler> own_samplers(std::size_t samples,
                                                               const DistributedSamplerOptions& options,
                                                               int epoch) const {
        std::vector<DistributedSampler> samplers;
        if (reproducible_) {
            for (const std::size_t shard : reproducible_->shards())
                samplers.emplace_back(samples, options_.reproducible_shards, shard, options);
        } else {
            samplers.emplace_back(samples, group_, options);
        }
        for (DistributedSampler& sampler : samplers) sampler.set_epoch(epoch);
        return samplers;
    }

    /// Performs step `index` of the epoch, with one batch from each of this rank's shards.
    template <class LoadedBatches>
    void step(LoadedBatches& batches, const detail::ShardBatches& indices, std::size_t index) {
        if (reproducible_) {
            for (std::size_t shard = 0; shard < indices.shards(); ++shard) {
                const std::size_t samples = load_next(batches);
                if (samples > 0) forward_backward(training_[shard]);
                reproducible_->add_shard(samples);
            }
            reproducible_->synchronize();
            step_values();
            return;
        }
        const std::size_t samples = load_next(batches);
        computation_.run(indices.is_full_everywhere(index), [&] {
            ddp_->begin_step(samples);
            if (samples > 0 || is_synchronized_) forward_backward(training_.front());
            ddp_->synchronize();
            step_values();
        });
    }

    /// Loads the next batch. Returns its number of samples.
    template <class LoadedBatches>
    [[nodiscard]] std::size_t load_next(LoadedBatches& batches) {
        const trace::Span span("load");
        return batches.next();
    }

    void forward(Totals& totals) {
        const trace::Span span("forward");
        computation_.forward(totals);
    }

    void forward_backward(Totals& totals) {
        forward(totals);
        const trace::Span span("backward");
        computation_.backward([&](std::size_t i) {
            if (ddp_ && options_.ready == Ready::marked) ddp_->mark_ready(i);
        });
    }

    void step_values() {
        const trace::Span span("optimizer");
        computation_.step_values(parameters());
    }

    /// Sums the totals of all shards in the order of the shards, whose results then do not depend on the
    /// number of ranks.
    [[nodiscard]] EpochResult over_all_ranks(const std::vector<Totals>& totals,
                                             std::chrono::steady_clock::time_point begin) {
        std::vector<double> own;
        for (const Totals& shard : totals) {
            const auto fetched = shard.fetch();
            own.insert(own.end(), {fetched.loss, fetched.correct, fetched.samples});
        }
        std::vector<double> all(own.size() * static_cast<std::size_t>(group_.size()));
        group_.all_gather(own, all);
        double sums[3] = {};
        for (std::size_t i = 0; i < all.size(); ++i) sums[i % 3] += all[i];
        const double samples = std::max(sums[2], 1.0);
        return {sums[0] / samples, sums[1] / samples, static_cast<std::size_t>(sums[2]),
                std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count()};
    }

    void check_finite(double loss, int epoch) {
        if (std::isfinite(loss)) return;
        detail::throw_agreed(
            group_, Error(detail::text("the loss is no longer finite in epoch ", epoch + 1,
                                       "; a smaller learning rate than ", options_.sgd.lr, " may help")));
    }

    [[nodiscard]] TrainingProgress progress(const EpochResult& result, int epoch, std::size_t done,
                                            std::size_t batches) const {
        const double batches_left =
            static_cast<double>(batches) * (options_.epochs - epoch) - static_cast<double>(done);
        return {.epoch = epoch + 1,
                .epochs = options_.epochs,
                .batch = done,
                .batches = batches,
                .loss = result.loss,
                .samples_per_second = static_cast<double>(result.samples) / result.seconds,
                .seconds_left = result.seconds / static_cast<double>(done) * batches_left};
    }

    /// Sets the network's mode until the end of the scope.
    class ModeScope {
      public:
        ModeScope(Computation& computation, nn::Mode mode)
            : computation_(computation), before_(computation.mode()) {
            computation_.set_mode(mode);
        }
        ~ModeScope() { computation_.set_mode(before_); }
        ModeScope(const ModeScope&) = delete;
        ModeScope& operator=(const ModeScope&) = delete;

      private:
        Computation& computation_;
        nn::Mode before_;
    };

    ProcessGroup& group_;
    TrainerOptions options_;
    std::optional<DistributedDataParallel> ddp_;
    std::optional<ReproducibleDataParallel> reproducible_;  // either ddp_ or reproducible_ is set
    Computation computation_;
    bool has_buffers_ = false;
    bool is_synchronized_ = false;  // whether batch norms wait for ranks without samples
    std::vector<Totals> training_;  // by shard of this rank
    std::vector<Totals> evaluation_;
};

}  // namespace DPTK_NAMESPACE
