/// TrainerComputation for networks in host memory.
#pragma once

#include <concepts>
#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "dptk/comm/process_group.hpp"
#include "dptk/core/config.hpp"
#include "dptk/core/detail/algorithms.hpp"
#include "dptk/data/data_loader.hpp"
#include "dptk/data/image.hpp"
#include "dptk/ddp/data_parallel_steps.hpp"
#include "dptk/ddp/distributed_data_parallel.hpp"
#include "dptk/nn/backend.hpp"
#include "dptk/nn/loss.hpp"
#include "dptk/nn/network.hpp"
#include "dptk/train/batch_outputs.hpp"
#include "dptk/train/detail/computation.hpp"
#include "dptk/train/detail/host_computation.hpp"
#include "dptk/train/detail/labeled_batch.hpp"
#include "dptk/train/detail/network_computation.hpp"
#include "dptk/train/detail/sample_image.hpp"
#include "dptk/train/detail/shard_batches.hpp"
#include "dptk/train/trainer_options.hpp"

namespace DPTK_NAMESPACE::detail {

template <nn::NetworkBackend Backend>
class TrainerComputation<nn::Network<Backend>> : public HostComputation<typename Backend::Scalar>,
                                                 public NetworkComputation<Backend> {
  public:
    using Scalar = typename Backend::Scalar;
    using Totals = typename HostComputation<Scalar>::Totals;
    static_assert(std::same_as<typename Backend::Tensor, dptk::Tensor<Scalar>>,
                  "dptk: a Trainer of a network on a GPU needs <dptk/train/detail/cuda/computation.hpp>");

    TrainerComputation(nn::Network<Backend>& net, const TrainerOptions& options)
        : HostComputation<Scalar>(options),
          NetworkComputation<Backend>(net),
          format_(sample_format(net, options.pixel_scale)),
          loss_{.label_smoothing = options.label_smoothing} {}

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

    template <class Dataset>
    [[nodiscard]] std::string problem_of(const Dataset& dataset) const {
        return problem_of_images(dataset, format_.input);
    }

    [[nodiscard]] std::shared_ptr<DistributedDataParallel> make_ddp(ProcessGroup& group,
                                                                    DistributedDataParallelOptions options) {
        return std::make_shared<DistributedDataParallel>(group, net_, std::move(options));
    }

    /// Makes backward compute gradients in their buckets.
    void use_gradient_memory(DataParallelSteps& steps) {
        for (std::size_t i = 0; i < net_.parameter_count(); ++i)
            if (!net_.is_frozen(i))
                net_.set_gradient_storage(i, steps.template gradient_memory<Scalar>(i),
                                          steps.gradient_memory_owner(i));
    }

    static constexpr bool makes_ddp = false;
    static constexpr bool can_move_values = true;

    /// Moves the network's values to memory in which `sharded` updates them.
    template <class Sharded>
    void use_value_memory(Sharded& sharded) {
        for (std::size_t i = 0; i < net_.parameter_count(); ++i)
            if (!net_.is_frozen(i))
                net_.set_value_storage(i, sharded.value_memory(i), sharded.value_memory_owner(i));
    }

    template <class Dataset>
    class Batches {
      public:
        Batches(TrainerComputation& computation, const Dataset& dataset, const ShardBatches& indices,
                const DataLoaderOptions& options)
            : loader_(dataset, indices, options, Collation(computation.format_)) {}

        [[nodiscard]] std::size_t next() {
            batch_ = &loader_.next();
            return batch_->labels.size();
        }

        [[nodiscard]] const LabeledBatch<Scalar>& batch() const noexcept { return *batch_; }

      private:
        using Collation = LabeledCollation<LoadedSample<Dataset>, Scalar>;

        BatchReader<Dataset, Collation> loader_;
        const LabeledBatch<Scalar>* batch_ = nullptr;  // in the loader
    };

    template <class LoadedBatches>
    void forward(const LoadedBatches& batches, Totals& totals) {
        const LabeledBatch<Scalar>& batch = batches.batch();
        if (batch.labels.empty()) {  // for batch norms that are synchronized
            no_samples_.resize(0, net_.input_shape());
            net_.forward(no_samples_);
            output_gradient_.resize(0, net_.output_shape());
            return;
        }
        const nn::Tensor<Scalar>& logits = net_.forward(batch.values);
        batch_ = &batch;
        logits_ = &logits;
        const nn::LossResult result =
            nn::softmax_cross_entropy(logits, batch.labels, output_gradient_, loss_);
        totals.add(result, batch.labels.size());
    }

    [[nodiscard]] BatchOutputs outputs(std::size_t samples) const {
        BatchOutputs outputs{.classes = format_.classes, .scores = {}, .labels = {}, .positions = {}};
        if (samples == 0) return outputs;
        outputs.scores.assign(logits_->data(), logits_->data() + logits_->size());
        outputs.labels = batch_->labels;
        return outputs;
    }

    [[nodiscard]] Image image(std::size_t i) const {
        const std::size_t size = element_count(format_.input);
        const Scalar* const values = batch_->values.data() + i * size;
        return sample_image(std::vector<float>(values, values + size), format_.input);
    }

    template <std::invocable<std::size_t> OnReady>
    void backward(OnReady&& on_ready) {
        net_.backward(output_gradient_, std::forward<OnReady>(on_ready));
    }

  private:
    using NetworkComputation<Backend>::net_;
    SampleFormat format_;
    nn::CrossEntropyOptions loss_;
    const LabeledBatch<Scalar>* batch_ = nullptr;  // of the last forward, in its loader
    const nn::Tensor<Scalar>* logits_ = nullptr;   // of the last forward, in the network
    nn::Tensor<Scalar> output_gradient_;
    nn::Tensor<Scalar> no_samples_;
};

}  // namespace DPTK_NAMESPACE::detail
