/// Trainer, the training loop of an image classifier on dptk's own networks: it combines sampler, DDP (or
/// ReproducibleDataParallel), loss and SGD. With DDP, gradients are computed directly in its buckets. Loss,
/// accuracy and sample counts are over all ranks, with each sample counted once; times are this rank's.
/// TrainerComputation has the parts that differ between host memory and GPUs.
#pragma once

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "dptk/comm/agreement.hpp"
#include "dptk/comm/process_group.hpp"
#include "dptk/core/config.hpp"
#include "dptk/core/trace.hpp"
#include "dptk/data/batch_sampler.hpp"
#include "dptk/data/distributed_sampler.hpp"
#include "dptk/data/image_dataset.hpp"
#include "dptk/ddp/distributed_data_parallel.hpp"
#include "dptk/ddp/reproducible.hpp"
#include "dptk/nn/sequential.hpp"
#include "dptk/train/detail/host_computation.hpp"
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
    Trainer(ProcessGroup& group, nn::Sequential<Backend>& net, TrainerOptions options)
        : group_(group),
          options_(std::move(options)),
          computation_(net, options_),
          training_(computation_.make_totals()),
          evaluation_(computation_.make_totals()) {
        check_options();
        if (options_.reproducible_shards > 0) {
            reproducible_.emplace(group, ParameterSource(net), options_.reproducible_shards);
            return;
        }
        ddp_.emplace(group, net, computation_.ddp_options(options_.ready));
        ddp_->set_comm_hook(options_.comm_hook);
        computation_.put_gradients_into(*ddp_);
    }

    /// Trains one epoch with SGD, in the sample order that (seed, epoch) determines, with at most
    /// batch_size samples per step and rank (or shard). Calls `on_progress` on all ranks at regular
    /// intervals, 20 to 39 times, or after each step if the epoch has fewer than 20. Collective. With a GPU,
    /// the host waits for the GPU only before it calls `on_progress`, in the first step of each batch size,
    /// and if the GPU has not yet loaded the previous batches.
    ///
    /// Throws MismatchError on all ranks if the dataset's size differs between ranks, and Error on all ranks
    /// if the loss is no longer finite.
    EpochResult train_epoch(const ImageDataset& dataset, int epoch,
                            const std::function<void(const TrainingProgress&)>& on_progress = {}) {
        const detail::PurposeScope here(group_.channel(), {.call = "train_epoch()", .owner = "Trainer"});
        check_equal_size(dataset);
        const std::vector<DistributedSampler> samplers = own_samplers(dataset, epoch);
        std::vector<Batches> batches;
        for (const DistributedSampler& sampler : samplers) batches.emplace_back(sampler, options_.batch_size);
        const std::size_t steps = batches.front().size();
        const std::size_t interval = std::max<std::size_t>(steps / 20, 1);
        const auto begin = std::chrono::steady_clock::now();
        training_.reset();
        computation_.drop_stale_graph(group_);
        EpochResult result;
        for (std::size_t done = 1; done <= steps; ++done) {
            step(dataset, batches, done - 1);
            if (done % interval != 0 && done != steps) continue;
            result = over_all_ranks(training_, begin);
            if (done == steps && ddp_) computation_.check(*ddp_);
            check_finite(result.loss, epoch);
            if (on_progress) on_progress(progress(result, epoch, done, steps));
            computation_.drop_stale_graph(group_);  // on_progress may have evaluated with other batch sizes
        }
        return result;
    }

    /// Returns loss and accuracy over the dataset, with each sample counted once. Collective. Throws
    /// MismatchError on all ranks if the dataset's size differs between ranks.
    EpochResult evaluate(const ImageDataset& dataset) {
        const detail::PurposeScope here(group_.channel(), {.call = "evaluate()", .owner = "Trainer"});
        check_equal_size(dataset);
        const DistributedSampler sampler(dataset, group_, {.shuffle = false, .padding = Padding::none});
        const auto begin = std::chrono::steady_clock::now();
        evaluation_.reset();
        for (const std::span<const std::size_t> batch : BatchSampler(sampler, options_.batch_size)) {
            if (batch.empty()) continue;
            load(dataset, batch);
            forward(evaluation_);
        }
        return over_all_ranks(evaluation_, begin);
    }

    /// Returns the parameters, for hashes and checkpoints.
    [[nodiscard]] const std::vector<ParameterRef>& parameters() const noexcept {
        return reproducible_ ? reproducible_->parameters() : ddp_->parameters();
    }

  private:
    using Batches = BatchSampler<DistributedSampler>;
    using Computation = detail::TrainerComputation<Backend>;
    /// Sums over this rank's samples, in the backend's memory.
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
        } else {
            problem = computation_.problem(options_);
        }
        detail::check_no_problem<ArgumentError>(group_, problem);
        detail::check_equal_tables(
            group_, "TrainerOptions",
            detail::text("epochs ", options_.epochs, "\nbatch_size ", options_.batch_size, "\nseed ",
                         options_.seed, "\nlr ", options_.sgd.lr, "\nmomentum ", options_.sgd.momentum,
                         "\nweight_decay ", options_.sgd.weight_decay, "\npixel_scale ", options_.pixel_scale,
                         "\nreproducible_shards ", options_.reproducible_shards, "\ncuda_graph ",
                         options_.cuda_graph));
    }

    /// Throws MismatchError on all ranks if the dataset's size differs between ranks, since the ranks would
    /// then make different numbers of steps. Collective.
    void check_equal_size(const ImageDataset& dataset) {
        detail::check_equal_tables(group_, "datasets", detail::text("samples ", dataset.size()));
    }

    /// Returns the samplers of this rank's share of the epoch's samples: one sampler, or with reproducible
    /// shards one for each of this rank's shards.
    [[nodiscard]] std::vector<DistributedSampler> own_samplers(const ImageDataset& dataset, int epoch) const {
        const DistributedSamplerOptions options{.seed = options_.seed, .padding = Padding::none};
        std::vector<DistributedSampler> samplers;
        if (reproducible_) {
            for (const std::size_t shard : reproducible_->shards())
                samplers.emplace_back(dataset.size(), options_.reproducible_shards, shard, options);
        } else {
            samplers.emplace_back(dataset, group_, options);
        }
        for (DistributedSampler& sampler : samplers) sampler.set_epoch(epoch);
        return samplers;
    }

    /// Performs step `index` of the epoch, with one batch from each of this rank's shares.
    void step(const ImageDataset& dataset, const std::vector<Batches>& shares, std::size_t index) {
        if (reproducible_) return reproducible_step(dataset, shares, index);
        const std::vector<std::size_t> batch = shares.front()[index];
        const std::size_t samples = batch.size();
        if (samples > 0) load(dataset, batch);
        computation_.run(shares.front().is_full_everywhere(index), [&] {
            ddp_->begin_step(samples);
            if (samples > 0) forward_backward();
            ddp_->synchronize();
            step_values();
        });
    }

    void reproducible_step(const ImageDataset& dataset, const std::vector<Batches>& shares,
                           std::size_t index) {
        for (const Batches& batches : shares) {
            const std::vector<std::size_t> batch = batches[index];
            if (!batch.empty()) {
                load(dataset, batch);
                forward_backward();
            }
            reproducible_->add_shard(batch.size());
        }
        reproducible_->synchronize();
        step_values();
    }

    void load(const ImageDataset& dataset, std::span<const std::size_t> batch) {
        const trace::Span span("load");
        computation_.load(dataset, batch);
    }

    void forward(Totals& totals) {
        const trace::Span span("forward");
        computation_.forward(totals);
    }

    void forward_backward() {
        forward(training_);
        const trace::Span span("backward");
        computation_.backward([&](std::size_t i) {
            if (ddp_ && options_.ready == Ready::marked) ddp_->mark_ready(i);
        });
    }

    void step_values() {
        const trace::Span span("optimizer");
        computation_.step_values(parameters());
    }

    [[nodiscard]] EpochResult over_all_ranks(const Totals& totals,
                                             std::chrono::steady_clock::time_point begin) {
        const auto own = totals.fetch();
        double sums[] = {own.loss, own.correct, own.samples};
        group_.all_reduce(sums);
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

    ProcessGroup& group_;
    TrainerOptions options_;
    std::optional<DistributedDataParallel> ddp_;
    std::optional<ReproducibleDataParallel> reproducible_;  // either ddp_ or reproducible_ is set
    Computation computation_;
    Totals training_;
    Totals evaluation_;
};

}  // namespace DPTK_NAMESPACE
