/// TrainerComputation, the part of a Trainer that depends on the network's backend: loading batches,
/// computing losses and gradients, and updating the values. This is the version for networks in host
/// memory; train/detail/cuda/computation.hpp has the version for GPUs.
#pragma once

#include <concepts>
#include <cstddef>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "dptk/core/config.hpp"
#include "dptk/core/detail/algorithms.hpp"
#include "dptk/core/parameter_ref.hpp"
#include "dptk/data/data_loader.hpp"
#include "dptk/ddp/distributed_data_parallel.hpp"
#include "dptk/nn/backend.hpp"
#include "dptk/nn/loss.hpp"
#include "dptk/nn/network.hpp"
#include "dptk/optim/sgd.hpp"
#include "dptk/train/detail/labeled_batch.hpp"
#include "dptk/train/detail/optimizer_choice.hpp"
#include "dptk/train/detail/shard_batches.hpp"
#include "dptk/train/trainer_options.hpp"

namespace DPTK_NAMESPACE::detail {

template <nn::NetworkBackend Backend>
class TrainerComputation {
  public:
    using Scalar = typename Backend::Scalar;
    static_assert(std::same_as<typename Backend::Tensor, dptk::Tensor<Scalar>>,
                  "dptk: a Trainer of a network on a GPU needs <dptk/train/detail/cuda/computation.hpp>");

    /// Sums over this rank's samples.
    struct Totals {
        double loss = 0;
        double correct = 0;
        double samples = 0;

        void reset() { *this = {}; }
        [[nodiscard]] const Totals& fetch() const noexcept { return *this; }
    };

    TrainerComputation(nn::Network<Backend>& net, const TrainerOptions& options)
        : net_(net), format_(sample_format(net, options.pixel_scale)), optimizer_(options) {}

    /// Returns what is wrong with the options; empty if they are valid.
    [[nodiscard]] std::string problem(const TrainerOptions& options) const {
        if (options.cuda_graph) return "Trainer: cuda_graph requires a network on a GPU";
        if (options.data_on_device) return "Trainer: data_on_device requires a network on a GPU";
        const auto depends_on_ranks = [](const nn::GraphNode& node) {
            return std::holds_alternative<nn::BatchNorm2d>(node.operation) ||
                   std::holds_alternative<nn::Dropout>(node.operation);
        };
        if (options.reproducible_shards > 0 && any_of(net_.graph().nodes(), depends_on_ranks))
            return "Trainer: reproducible_shards requires a network without batch norms and dropout, which "
                   "depend on the number of ranks";
        return "";
    }

    /// Returns why the network does not accept the dataset; empty if it does.
    template <class Dataset>
    [[nodiscard]] std::string problem_of(const Dataset& dataset) const {
        return problem_of_images(dataset, format_.input);
    }

    [[nodiscard]] nn::Mode mode() const noexcept { return net_.mode(); }

    void set_mode(nn::Mode mode) noexcept { net_.set_mode(mode); }

    [[nodiscard]] DistributedDataParallelOptions ddp_options(Ready ready) const { return {.ready = ready}; }

    [[nodiscard]] Totals make_totals() const { return {}; }

    /// Makes the network compute gradients directly in DDP's buckets, which then can no longer be rebuilt.
    void put_gradients_into(DistributedDataParallel& ddp) {
        for (std::size_t i = 0; i < net_.parameter_count(); ++i)
            net_.set_gradient_storage(i, ddp.template gradient_memory<Scalar>(i),
                                      ddp.gradient_memory_owner(i));
    }

    /// The batches of a pass over a dataset. Dataset and indices must outlive this object.
    template <class Dataset>
    class Batches {
      public:
        Batches(TrainerComputation& computation, const Dataset& dataset, const ShardBatches& indices,
                const DataLoaderOptions& options)
            : computation_(computation), loader_(dataset, indices, options, Collation(computation.format_)) {}

        /// Loads the next batch for subsequent passes. Returns its number of samples, which may be 0.
        [[nodiscard]] std::size_t next() {
            const LabeledBatch<Scalar>& batch = loader_.next();
            computation_.batch_ = &batch;
            return batch.labels.size();
        }

      private:
        using Collation = LabeledCollation<LoadedSample<Dataset>, Scalar>;

        TrainerComputation& computation_;
        BatchReader<Dataset, Collation> loader_;
    };

    /// Called at the start of an epoch and after Callback::train_summary(). Only the version for GPUs has a
    /// graph. Collective.
    void drop_stale_graph(ProcessGroup& /*group*/) {}

    /// Runs a step after a batch is loaded, by calling `step`. The work of `step` may depend only on the
    /// number of samples, since the version for GPUs captures it in a CUDA graph. `all_are_full` says whether
    /// all ranks have a full batch.
    template <std::invocable Step>
    void run(bool /*all_are_full*/, Step&& step) {
        std::forward<Step>(step)();
    }

    /// Adds the batch's loss and number of correct predictions to the totals.
    void forward(Totals& totals) {
        if (batch_->labels.empty()) {  // for batch norms that are synchronized
            no_samples_.resize(0, net_.input_shape());
            net_.forward(no_samples_);
            output_gradient_.resize(0, net_.output_shape());
            return;
        }
        const nn::Tensor<Scalar>& logits = net_.forward(batch_->values);
        const nn::LossResult result = nn::softmax_cross_entropy(logits, batch_->labels, output_gradient_);
        const auto samples = static_cast<double>(batch_->labels.size());
        totals.loss += result.loss * samples;
        totals.correct += static_cast<double>(result.correct);
        totals.samples += samples;
    }

    template <std::invocable<std::size_t> OnReady>
    void backward(OnReady&& on_ready) {
        net_.backward(output_gradient_, std::forward<OnReady>(on_ready));
    }

    [[nodiscard]] auto& optimizer() noexcept { return optimizer_; }

    [[nodiscard]] const auto& optimizer() const noexcept { return optimizer_; }

    /// Returns a view of elements in the layout of a parameter.
    [[nodiscard]] std::span<Scalar> elements(const ParameterRef& parameter, const void* data) const {
        return {static_cast<Scalar*>(const_cast<void*>(data)), parameter.count};
    }

    /// Returns a copy of an optimizer's array where the network's elements are.
    [[nodiscard]] std::vector<Scalar> upload(std::vector<Scalar> array) const { return array; }

    [[nodiscard]] std::vector<Scalar> download(const std::vector<Scalar>& array) const { return array; }

    [[nodiscard]] nn::Network<Backend>& network() noexcept { return net_; }

    /// Does nothing: on the host each step throws its own errors.
    void check(DistributedDataParallel& /*ddp*/) {}

  private:
    nn::Network<Backend>& net_;
    SampleFormat format_;
    OptimizerChoice<Scalar, SGD<Scalar>, Adam<Scalar>, AdamW<Scalar>> optimizer_;
    const LabeledBatch<Scalar>* batch_ = nullptr;  // in the loader of the current pass
    nn::Tensor<Scalar> output_gradient_;
    nn::Tensor<Scalar> no_samples_;
};

}  // namespace DPTK_NAMESPACE::detail
