/// The training loop of an image classifier on dptk's own networks: sampler, DDP, loss and SGD put together,
/// with the gradients living in DDP's buckets. Every number that it gives is over all ranks, each sample
/// counted once.
#pragma once

#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "dptk/comm/agreement.hpp"
#include "dptk/comm/process_group.hpp"
#include "dptk/core/trace.hpp"
#include "dptk/data/batch_sampler.hpp"
#include "dptk/data/distributed_sampler.hpp"
#include "dptk/data/image_dataset.hpp"
#include "dptk/ddp/distributed_data_parallel.hpp"
#include "dptk/ddp/reproducible.hpp"
#include "dptk/nn/loss.hpp"
#include "dptk/nn/sequential.hpp"
#include "dptk/optim/sgd.hpp"
#include "dptk/train/image_batch.hpp"
#include "dptk/train/progress.hpp"

namespace dptk {

struct TrainerOptions {
    int epochs = 10;
    /// Per rank; per shard, where there are reproducible_shards.
    std::size_t batch_size = 32;
    SgdOptions sgd = {.lr = 0.01};
    /// Of the order of the samples.
    std::uint64_t seed = 0;
    /// What a pixel is multiplied by.
    double pixel_scale = 1.0 / 255;
    /// Under Ready::marked, buckets travel on a thread of their own while backward goes on: worth it where
    /// there is a core for that thread.
    Ready ready = Ready::at_synchronize;
    /// How buckets are summed: see set_comm_hook of DistributedDataParallel. The same on all ranks.
    std::shared_ptr<CommHook> comm_hook = nullptr;
    /// In so many pieces each step's batch is computed, for the same bits at every number of ranks: see
    /// ReproducibleDataParallel. 0: by DistributedDataParallel.
    std::size_t reproducible_shards = 0;
};

/// A pass over a dataset.
struct EpochResult {
    double loss = 0;  // mean over the samples
    double accuracy = 0;
    std::size_t samples = 0;
    double seconds = 0;
};

template <nn::NetworkBackend Backend>
class Trainer {
  public:
    using Scalar = typename Backend::Scalar;

    /// Gives all ranks rank 0's parameters. Collective; group and network must outlive the trainer. Throws as
    /// DistributedDataParallel, ReproducibleDataParallel and SGD do; on all ranks alike ArgumentError for a
    /// batch size of 0, fewer than 1 epoch, or a hook beside reproducible shards, and MismatchError where
    /// options differ.
    Trainer(ProcessGroup& group, nn::Sequential<Backend>& net, TrainerOptions options)
        : group_(group), net_(net), options_(std::move(options)), sgd_(options_.sgd) {
        check_options();
        if (options_.reproducible_shards > 0) {
            reproducible_.emplace(group, ParameterSource(net), options_.reproducible_shards);
            return;
        }
        ddp_.emplace(group, net, DistributedDataParallelOptions{.ready = options_.ready});
        ddp_->set_comm_hook(options_.comm_hook);
        for (std::size_t i = 0; i < net_.parameter_count(); ++i) {
            net_.set_gradient_storage(i, ddp_->template gradient_memory<Scalar>(i));
        }
    }

    /// One epoch of SGD over the dataset, in the order of (seed, epoch), with at most batch_size samples a
    /// rank and step. `on_progress` is called on all ranks about twenty times. Collective.
    ///
    /// Throws Error on all ranks alike when the loss is no longer finite.
    EpochResult train_epoch(const ImageDataset& dataset, int epoch,
                            const std::function<void(const TrainingProgress&)>& on_progress = {}) {
        const std::vector<DistributedSampler> samplers = own_samplers(dataset, epoch);
        std::vector<Batches> batches;
        for (const DistributedSampler& sampler : samplers) batches.emplace_back(sampler, options_.batch_size);
        const std::size_t steps = batches.front().size();
        const std::size_t interval = std::max<std::size_t>(steps / 20, 1);
        const auto begin = std::chrono::steady_clock::now();
        Totals totals;
        EpochResult result;
        for (std::size_t done = 1; done <= steps; ++done) {
            step(dataset, batches, done - 1, totals);
            if (done % interval != 0 && done != steps) continue;
            result = over_all_ranks(totals, begin);
            check_finite(result.loss, epoch);
            if (on_progress) on_progress(progress(result, epoch, done, steps));
        }
        return result;
    }

    /// Loss and accuracy over the dataset, each sample counted once. Collective.
    EpochResult evaluate(const ImageDataset& dataset) {
        const DistributedSampler sampler(dataset, group_, {.shuffle = false, .padding = Padding::none});
        const auto begin = std::chrono::steady_clock::now();
        Totals totals;
        for (const std::span<const std::size_t> batch : BatchSampler(sampler, options_.batch_size)) {
            if (!batch.empty()) forward(dataset, batch, totals);
        }
        return over_all_ranks(totals, begin);
    }

    /// The parameters, for hashes and checkpoints.
    [[nodiscard]] const std::vector<ParameterRef>& parameters() const noexcept {
        return reproducible_ ? reproducible_->parameters() : ddp_->parameters();
    }

  private:
    using Batches = BatchSampler<DistributedSampler>;

    /// Sums over this rank's samples.
    struct Totals {
        double loss = 0;
        double correct = 0;
        double samples = 0;
    };

    /// On all ranks, before they do different things. Collective.
    void check_options() {
        std::string problem;
        if (options_.batch_size == 0) {
            problem = "Trainer: a batch size of 0";
        } else if (options_.epochs < 1) {
            problem = detail::text("Trainer: ", options_.epochs, " epochs");
        } else if (options_.comm_hook && options_.reproducible_shards > 0) {
            problem = "Trainer: a hook sums in an order of its own, and not reproducible_shards";
        }
        detail::check_no_problem<ArgumentError>(group_, problem);
        detail::check_equal_tables(
            group_, "TrainerOptions",
            detail::text("epochs ", options_.epochs, "\nbatch_size ", options_.batch_size, "\nseed ",
                         options_.seed, "\nlr ", options_.sgd.lr, "\nmomentum ", options_.sgd.momentum,
                         "\nweight_decay ", options_.sgd.weight_decay, "\npixel_scale ", options_.pixel_scale,
                         "\nreproducible_shards ", options_.reproducible_shards));
    }

    /// This rank's share of the epoch's samples: one, or one for each of its shards.
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

    /// Step `index` of the epoch, with a batch of each of this rank's shares.
    void step(const ImageDataset& dataset, const std::vector<Batches>& shares, std::size_t index,
              Totals& totals) {
        if (reproducible_) {
            for (const Batches& batches : shares) {
                const std::vector<std::size_t> batch = batches[index];
                forward_backward(dataset, batch, totals);
                reproducible_->add_shard(batch.size());
            }
            reproducible_->synchronize();
        } else {
            const std::vector<std::size_t> batch = shares.front()[index];
            ddp_->begin_step(batch.size());
            forward_backward(dataset, batch, totals);
            ddp_->synchronize();
        }
        const trace::Span span("optimizer");
        for (std::size_t i = 0; i < parameters().size(); ++i) {
            const ParameterRef& parameter = parameters()[i];
            sgd_.step(i, std::span(static_cast<Scalar*>(parameter.value), parameter.count),
                      std::span<const Scalar>(static_cast<Scalar*>(parameter.gradient), parameter.count));
        }
    }

    void forward_backward(const ImageDataset& dataset, std::span<const std::size_t> batch, Totals& totals) {
        if (batch.empty()) return;
        forward(dataset, batch, totals);
        const trace::Span span("backward");
        net_.backward(output_gradient_, [&](std::size_t i) {
            if (ddp_ && options_.ready == Ready::marked) ddp_->mark_ready(i);
        });
    }

    void forward(const ImageDataset& dataset, std::span<const std::size_t> batch, Totals& totals) {
        const trace::Span span("forward");
        batch_.load(dataset, batch, static_cast<Scalar>(options_.pixel_scale));
        const nn::Tensor<Scalar>& logits = net_.forward(batch_.images());
        const nn::LossResult result = nn::softmax_cross_entropy(logits, batch_.labels(), output_gradient_);
        totals.loss += result.loss * static_cast<double>(batch.size());
        totals.correct += static_cast<double>(result.correct);
        totals.samples += static_cast<double>(batch.size());
    }

    [[nodiscard]] EpochResult over_all_ranks(const Totals& totals,
                                             std::chrono::steady_clock::time_point begin) {
        double sums[] = {totals.loss, totals.correct, totals.samples};
        group_.all_reduce(sums);
        const double samples = std::max(sums[2], 1.0);
        return {sums[0] / samples, sums[1] / samples, static_cast<std::size_t>(sums[2]),
                std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count()};
    }

    void check_finite(double loss, int epoch) {
        if (std::isfinite(loss)) return;
        detail::throw_agreed(group_,
                             Error(detail::text("the loss is no longer finite in epoch ", epoch + 1,
                                                "; a smaller learning rate than ", sgd_.lr(), " may help")));
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
    nn::Sequential<Backend>& net_;
    TrainerOptions options_;
    std::optional<DistributedDataParallel> ddp_;
    std::optional<ReproducibleDataParallel> reproducible_;  // one of the two
    SGD<Scalar> sgd_;
    ImageBatch<Scalar> batch_;
    nn::Tensor<Scalar> output_gradient_;
};

}  // namespace dptk
