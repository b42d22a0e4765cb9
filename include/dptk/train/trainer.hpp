/// The training loop of an image classifier on dptk's own networks: sampler, DDP, loss and SGD put together,
/// with the gradients living in DDP's buckets. Every number that it gives is over all ranks, each sample
/// counted once.
#pragma once

#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <utility>

#include "dptk/comm/agreement.hpp"
#include "dptk/comm/process_group.hpp"
#include "dptk/core/trace.hpp"
#include "dptk/data/batch_sampler.hpp"
#include "dptk/data/distributed_sampler.hpp"
#include "dptk/data/image_dataset.hpp"
#include "dptk/ddp/distributed_data_parallel.hpp"
#include "dptk/nn/loss.hpp"
#include "dptk/nn/sequential.hpp"
#include "dptk/optim/sgd.hpp"
#include "dptk/train/image_batch.hpp"
#include "dptk/train/progress.hpp"

namespace dptk {

struct TrainerOptions {
    int epochs = 10;
    /// Per rank.
    std::size_t batch_size = 32;
    SgdOptions sgd = {.lr = 0.01};
    /// Of the order of the samples.
    std::uint64_t seed = 0;
    /// What a pixel is multiplied by.
    double pixel_scale = 1.0 / 255;
    /// Under Ready::marked, buckets travel on a thread of their own while backward goes on: worth it where
    /// there is a core for that thread.
    Ready ready = Ready::at_synchronize;
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
    /// DistributedDataParallel and SGD do; ArgumentError for a batch size of 0 or fewer than 1 epoch.
    Trainer(ProcessGroup& group, nn::Sequential<Backend>& net, TrainerOptions options)
        : group_(group),
          net_(net),
          options_(checked(options)),
          ddp_(group, net, {.ready = options.ready}),
          sgd_(options.sgd) {
        for (std::size_t i = 0; i < net_.parameter_count(); ++i) {
            net_.set_gradient_storage(i, ddp_.template gradient_memory<Scalar>(i));
        }
    }

    /// One epoch of SGD over the dataset, in the order of (seed, epoch), with at most batch_size samples a
    /// rank and step. `on_progress` is called on all ranks about twenty times. Collective.
    ///
    /// Throws Error on all ranks alike when the loss is no longer finite.
    EpochResult train_epoch(const ImageDataset& dataset, int epoch,
                            const std::function<void(const TrainingProgress&)>& on_progress = {}) {
        DistributedSampler sampler(dataset, group_, {.seed = options_.seed, .padding = Padding::none});
        sampler.set_epoch(epoch);
        const BatchSampler batches(sampler, options_.batch_size);
        const std::size_t interval = std::max<std::size_t>(batches.size() / 20, 1);
        const auto begin = std::chrono::steady_clock::now();
        Totals totals;
        EpochResult result;
        std::size_t done = 0;
        for (const std::span<const std::size_t> batch : batches) {
            step(dataset, batch, totals);
            ++done;
            if (done % interval != 0 && done != batches.size()) continue;
            result = over_all_ranks(totals, begin);
            check_finite(result.loss, epoch);
            if (on_progress) on_progress(progress(result, epoch, done, batches.size()));
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
    [[nodiscard]] const std::vector<ParameterRef>& parameters() const noexcept { return ddp_.parameters(); }

  private:
    /// Sums over this rank's samples.
    struct Totals {
        double loss = 0;
        double correct = 0;
        double samples = 0;
    };

    [[nodiscard]] static TrainerOptions checked(const TrainerOptions& options) {
        if (options.batch_size == 0) throw ArgumentError("Trainer: a batch size of 0");
        if (options.epochs < 1) throw ArgumentError(detail::text("Trainer: ", options.epochs, " epochs"));
        return options;
    }

    void step(const ImageDataset& dataset, std::span<const std::size_t> batch, Totals& totals) {
        ddp_.begin_step(batch.size());
        if (!batch.empty()) {
            forward(dataset, batch, totals);
            const trace::Span span("backward");
            net_.backward(output_gradient_, [&](std::size_t i) {
                if (options_.ready == Ready::marked) ddp_.mark_ready(i);
            });
        }
        ddp_.synchronize();
        const trace::Span span("optimizer");
        for (std::size_t i = 0; i < ddp_.parameters().size(); ++i) {
            const ParameterRef& parameter = ddp_.parameters()[i];
            sgd_.step(i, std::span(static_cast<Scalar*>(parameter.value), parameter.count),
                      std::span<const Scalar>(static_cast<Scalar*>(parameter.gradient), parameter.count));
        }
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
    DistributedDataParallel ddp_;
    SGD<Scalar> sgd_;
    ImageBatch<Scalar> batch_;
    nn::Tensor<Scalar> output_gradient_;
};

}  // namespace dptk
