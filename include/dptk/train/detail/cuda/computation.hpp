/// A Trainer's loading, forward, backward and optimizer step on a GPU, with CUDA graphs. All work is
/// enqueued on the network's stream. The host waits only when totals are fetched, in the first step of each
/// batch size, and if DeviceBatches::load() blocks.
#pragma once

#include <concepts>
#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "dptk/comm/detail/device_registry.hpp"
#include "dptk/comm/process_group.hpp"
#include "dptk/core/config.hpp"
#include "dptk/core/cuda/copy.hpp"
#include "dptk/core/cuda/graph.hpp"
#include "dptk/core/detail/text.hpp"
#include "dptk/core/device_span.hpp"
#include "dptk/core/parameter_ref.hpp"
#include "dptk/data/image.hpp"
#include "dptk/data/image_dataset.hpp"
#include "dptk/ddp/comm_hook.hpp"
#include "dptk/ddp/distributed_data_parallel.hpp"
#include "dptk/nn/cuda/backend.hpp"
#include "dptk/nn/cuda/loss.hpp"
#include "dptk/nn/network.hpp"
#include "dptk/optim/cuda/fused_optimizers.hpp"
#include "dptk/train/batch_outputs.hpp"
#include "dptk/train/detail/computation.hpp"
#include "dptk/train/detail/cuda/batches.hpp"
#include "dptk/train/detail/labeled_batch.hpp"
#include "dptk/train/detail/network_computation.hpp"
#include "dptk/train/detail/optimizer_choice.hpp"
#include "dptk/train/detail/sample_image.hpp"
#include "dptk/train/detail/shard_batches.hpp"
#include "dptk/train/trainer_options.hpp"

namespace DPTK_NAMESPACE::detail {

/// The network's device must be the current device in all calls. Must be destroyed before the
/// DistributedDataParallel whose collectives the graph contains.
template <>
class TrainerComputation<nn::Network<nn::Cuda>> : public NetworkComputation<nn::Cuda> {
  public:
    using Scalar = float;
    static constexpr bool is_on_host = false;
    using Totals = nn::DeviceLoss;

    TrainerComputation(nn::Network<nn::Cuda>& net, const TrainerOptions& options)
        : NetworkComputation<nn::Cuda>(net),
          stream_(net.backend().stream()),
          wants_graph_(options.cuda_graph),
          comm_hook_(options.comm_hook),
          format_(sample_format(net, options.pixel_scale)),
          keeps_datasets_(options.data_on_device),
          batches_(net.input_shape(), options, stream_),
          optimizer_(options, stream_) {}

    [[nodiscard]] std::string problem(const TrainerOptions& options) const {
        if (options.reproducible_shards > 0)
            return "Trainer: reproducible_shards requires a network in host memory";
        if (options.shard_optimizer) return "Trainer: shard_optimizer requires a network in host memory";
        if (options.fused_step == FusedStep::yes)
            return "Trainer: fused_step requires a network in host memory";
        if (options.accumulate > 1) return "Trainer: accumulate requires a network in host memory";
        if (options.label_smoothing > 0) return "Trainer: label_smoothing requires a network in host memory";
        if (!options.freeze.empty() || !options.lr_factors.empty())
            return text("Trainer: ", options.freeze.empty() ? "lr_factors" : "freeze",
                        " requires a network in host memory");
        if (options.data_on_device && !(options.transform.empty() && options.evaluation_transform.empty()))
            return "Trainer: data_on_device and transforms cannot be combined";
        if (options.cuda_graph && stream_ == StreamRef())
            return "Trainer: cuda_graph requires a network on a stream of its own, got the default stream";
        if (options.cuda_graph && choose_device_transport().name != "nccl")
            return "Trainer: cuda_graph requires NCCL, but gradients are sent through the host";
        return "";
    }

    template <class Dataset>
    [[nodiscard]] std::string problem_of(const Dataset& dataset) const {
        if (keeps_datasets_) {
            if constexpr (std::same_as<Dataset, ImageDataset>) {
                if (dataset.classes() > format_.classes)
                    return text("Trainer: data_on_device: the dataset has ", dataset.classes(),
                                " classes, the network ", format_.classes);
            } else {
                return "Trainer: data_on_device requires an ImageDataset";
            }
        }
        return problem_of_images(dataset, format_.input);
    }

    [[nodiscard]] Totals make_totals() const { return nn::DeviceLoss(stream_); }

    [[nodiscard]] std::shared_ptr<DistributedDataParallel> make_ddp(ProcessGroup& group,
                                                                    DistributedDataParallelOptions options) {
        options.stream = stream_;
        return std::make_shared<DistributedDataParallel>(group, net_, std::move(options));
    }

    /// Makes backward compute gradients in their buckets.
    void use_gradient_memory(DataParallelSteps& steps) {
        for (std::size_t i = 0; i < net_.parameter_count(); ++i) {
            const Buffer gradient = steps.gradient_buffer(i);
            net_.set_gradient_storage(
                i, DeviceSpan<float>(static_cast<float*>(gradient.data), gradient.count, gradient.device),
                steps.gradient_memory_owner(i));
        }
    }

    template <class Dataset>
    class Batches {
      public:
        Batches(TrainerComputation& computation, const Dataset& dataset, const ShardBatches& indices,
                const DataLoaderOptions& options)
            : batches_(computation.batches_), dataset_(dataset), indices_(indices) {
            if (!computation.keeps_datasets_)
                reader_.emplace(dataset, indices, options, Collation(computation.format_));
        }

        [[nodiscard]] std::size_t next() {
            const std::size_t place = next_++;
            if constexpr (std::same_as<Dataset, ImageDataset>) {
                if (!reader_) {
                    const std::vector<std::size_t> indices = indices_[place];
                    if (!indices.empty()) batches_.load(dataset_, indices);
                    return indices.size();
                }
            }
            const LabeledBatch<Value>& batch = reader_->next();
            if (!batch.labels.empty()) batches_.load(batch);
            return batch.labels.size();
        }

      private:
        using Sample = LoadedSample<Dataset>;
        using Value = std::conditional_t<has_bytes<Sample>, std::uint8_t, float>;
        using Collation = LabeledCollation<Sample, Value>;

        DeviceBatches& batches_;
        const Dataset& dataset_;
        const ShardBatches& indices_;
        std::size_t next_ = 0;
        std::optional<BatchReader<Dataset, Collation>> reader_;  // unless the dataset is on the device
    };

    /// If the network of any rank has reallocated memory, makes all ranks capture the graph again: NCCL
    /// requires that a graph with collectives is launched on all ranks or on none.
    void drop_stale_graph(ProcessGroup& group) {
        if (!wants_graph_) return;
        const bool has_moved = graph_memory_ != net_.backend().memory_version();
        if (group.all_reduce_value<int>(has_moved ? 1 : 0, ReduceOp::max) == 0) return;
        graph_.reset();
        plain_steps_ = 0;
    }

    /// Captures a step in which all ranks have full batches, and launches the graph for subsequent such
    /// steps. Before the capture, a few steps run without a graph: they plan and allocate what a step needs.
    /// If a comm hook does different work in its first steps, the capture is postponed until the hook does
    /// the same work in all further steps.
    template <std::invocable Step>
    void run(bool all_are_full, Step&& step) {
        const bool may_capture = plain_steps_ >= plain_steps && repeats_;
        const bool is_plain = !wants_graph_ || !all_are_full || (!graph_ && !may_capture);
        if (is_plain) {
            repeats_ = !comm_hook_ || comm_hook_->is_capturable();
            std::forward<Step>(step)();
            if (all_are_full) ++plain_steps_;
            if (!graph_) graph_memory_ = net_.backend().memory_version();
            return;
        }
        if (!graph_) {
            graph_ = cuda::Graph::capture(stream_, std::forward<Step>(step));
            graph_memory_ = net_.backend().memory_version();
        }
        graph_->launch(stream_);
    }

    template <class LoadedBatches>
    void forward(const LoadedBatches& /*batches*/, Totals& totals) {
        logits_ = &net_.forward(batches_.images());
        totals.add(*logits_, batches_.labels(), output_gradient_);
    }

    [[nodiscard]] BatchOutputs outputs(std::size_t samples) const {
        BatchOutputs outputs{.classes = format_.classes, .scores = {}, .labels = {}, .positions = {}};
        if (samples == 0) return outputs;
        outputs.scores = cuda::to_host(logits_->values(), stream_);
        outputs.labels = cuda::to_host(batches_.labels(), stream_);
        return outputs;
    }

    [[nodiscard]] Image image(std::size_t i) const {
        const std::size_t size = element_count(format_.input);
        return sample_image(cuda::to_host(batches_.images().values().subspan(i * size, size), stream_),
                            format_.input);
    }

    template <std::invocable<std::size_t> OnReady>
    void backward(OnReady&& on_ready) {
        net_.backward(output_gradient_, std::forward<OnReady>(on_ready));
    }

    [[nodiscard]] auto& optimizer() noexcept { return optimizer_; }

    [[nodiscard]] const auto& optimizer() const noexcept { return optimizer_; }

    [[nodiscard]] DeviceSpan<float> elements(const ParameterRef& parameter, const void* data) const {
        return {static_cast<float*>(const_cast<void*>(data)), parameter.count, parameter.device};
    }

    [[nodiscard]] cuda::DeviceBuffer<float> upload(const std::vector<float>& array) const {
        return cuda::to_device(array, stream_);
    }

    [[nodiscard]] std::vector<float> download(const cuda::DeviceBuffer<float>& array) const {
        return cuda::to_host(array.span(), stream_);
    }

    void check(DistributedDataParallel& ddp) { ddp.check(); }

  private:
    /// The number of steps with full batches that run without a graph before one is captured: two steps,
    /// after which the buckets are final, and a third one, which reports an error of the second one.
    static constexpr std::size_t plain_steps = 3;

    StreamRef stream_;
    bool wants_graph_;
    std::shared_ptr<const CommHook> comm_hook_;
    SampleFormat format_;
    bool keeps_datasets_;
    DeviceBatches batches_;
    nn::DeviceTensor<float> output_gradient_;
    const nn::DeviceTensor<float>* logits_ = nullptr;  // of the last forward, in the network
    OptimizerChoice<float, FusedSGD, FusedAdam, FusedAdamW> optimizer_;
    std::size_t plain_steps_ = 0;  // steps with full batches since graph_ was reset
    bool repeats_ = false;         // whether the comm hook does the same work in all further steps
    std::optional<cuda::Graph> graph_;
    std::size_t graph_memory_ = 0;  // the version of the network's memory in graph_, or in the last step
};

}  // namespace DPTK_NAMESPACE::detail
