/// TrainerComputation for models of programs: see TrainableModel.
#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "dptk/comm/process_group.hpp"
#include "dptk/core/buffer.hpp"
#include "dptk/core/config.hpp"
#include "dptk/core/detail/text.hpp"
#include "dptk/core/dtype.hpp"
#include "dptk/core/error.hpp"
#include "dptk/core/parameter_ref.hpp"
#include "dptk/core/tensor.hpp"
#include "dptk/data/data_loader.hpp"
#include "dptk/data/image.hpp"
#include "dptk/data/image_batch.hpp"
#include "dptk/data/image_dataset.hpp"
#include "dptk/ddp/data_parallel_steps.hpp"
#include "dptk/ddp/distributed_data_parallel.hpp"
#include "dptk/ddp/parameter_source.hpp"
#include "dptk/nn/graph.hpp"
#include "dptk/nn/loss.hpp"
#include "dptk/train/batch_outputs.hpp"
#include "dptk/train/detail/computation.hpp"
#include "dptk/train/detail/host_computation.hpp"
#include "dptk/train/detail/labeled_batch.hpp"
#include "dptk/train/detail/sample_image.hpp"
#include "dptk/train/detail/shard_batches.hpp"
#include "dptk/train/trainable_model.hpp"
#include "dptk/train/trainer_options.hpp"

namespace DPTK_NAMESPACE::detail {

/// The type of a model's elements.
template <class Model>
struct ScalarOfModel {
    using type = float;
};
template <class Model>
    requires requires { typename Model::Scalar; }
struct ScalarOfModel<Model> {
    using type = typename Model::Scalar;
};

/// What ModelState saves of a model whose elements are row-major, in host memory.
template <class Model, class Scalar>
class RowMajorModel {
  public:
    explicit RowMajorModel(Model& model) : model_(model) {}

    static void to_row_major(std::size_t /*i*/, std::span<Scalar> elements, std::span<Scalar> out) {
        std::copy(elements.begin(), elements.end(), out.begin());
    }

    static void from_row_major(std::size_t /*i*/, std::span<const Scalar> values,
                               std::span<Scalar> elements) {
        std::copy(values.begin(), values.end(), elements.begin());
    }

    template <class Sink>
    void for_each_buffer(Sink&& sink) {
        if constexpr (requires { model_.for_each_buffer(sink); }) model_.for_each_buffer(sink);
    }

    static void fetch_buffer(const Buffer& buffer, void* out) {
        std::copy_n(static_cast<const std::byte*>(buffer.data), buffer.bytes(), static_cast<std::byte*>(out));
    }

    static void store_buffer(const void* from, const Buffer& buffer) {
        std::copy_n(static_cast<const std::byte*>(from), buffer.bytes(),
                    static_cast<std::byte*>(buffer.data));
    }

  private:
    Model& model_;
};

template <class Model>
class TrainerComputation : public HostComputation<typename ScalarOfModel<Model>::type> {
  public:
    using Scalar = typename ScalarOfModel<Model>::type;
    using Totals = typename HostComputation<Scalar>::Totals;
    static_assert(TrainableModel<Model>,
                  "dptk: a Trainer trains an nn::Network, or a model that has the members that "
                  "dptk/train/trainable_model.hpp lists");

    TrainerComputation(Model& model, const TrainerOptions& options)
        : HostComputation<Scalar>(options), model_(model), state_(model), pixel_scale_(options.pixel_scale) {}

    [[nodiscard]] std::string problem(const TrainerOptions& options) const {
        if (options.cuda_graph) return "Trainer: cuda_graph requires a network on a GPU";
        if (options.data_on_device) return "Trainer: data_on_device requires a network on a GPU";
        if (options.label_smoothing > 0)
            return "Trainer: label_smoothing requires a network: a model computes its own loss";
        if (options.ready == Ready::marked && !marks_ready && !makes_ddp)
            return "Trainer: Ready::marked requires a model with a backward(on_ready)";
        if constexpr (makes_ddp) {
            if (options.reproducible_shards > 0)
                return "Trainer: reproducible_shards and a model with a make_ddp() cannot be combined";
            if (options.accumulate > 1)
                return "Trainer: accumulate and a model with a make_ddp() cannot be combined";
            if (options.shard_optimizer || options.fused_step == FusedStep::yes)
                return text("Trainer: ", options.shard_optimizer ? "shard_optimizer" : "fused_step",
                            " and a model with a make_ddp() cannot be combined");
            if (!options.freeze.empty())
                return "Trainer: freeze and a model with a make_ddp() cannot be combined";
        }
        return "";
    }

    template <class Dataset>
    [[nodiscard]] std::string problem_of(const Dataset& /*dataset*/) const {
        return "";
    }

    static void require_usable(const ParameterRef& parameter) {
        if (parameter.dtype != dtype_of<Scalar>)
            throw ArgumentError(text("Trainer: parameter ", parameter.name, " is of type ",
                                     dtype_name(parameter.dtype), ", expected ", dtype_name(dtype_of<Scalar>),
                                     ", the model's Scalar or else float"));
        if (parameter.layout != 0 || parameter.count != element_count(parameter.shape))
            throw ArgumentError(text("Trainer: parameter ", parameter.name, " is not row-major"));
        if (parameter.device.type != DeviceType::cpu)
            throw ArgumentError(text("Trainer: parameter ", parameter.name, " is not in host memory"));
    }

    void join(ProcessGroup& /*group*/) {}

    /// Does nothing: the optimizer does not step frozen parameters, and DDP ignores them.
    void set_frozen(std::span<const std::size_t> /*parameters*/) {}

    [[nodiscard]] bool has_buffers() { return !nn::detail::buffers_of_net(state_).empty(); }

    [[nodiscard]] static bool is_synchronized() noexcept { return false; }

    [[nodiscard]] nn::Mode mode() const noexcept { return mode_; }

    void set_mode(nn::Mode mode) noexcept { mode_ = mode; }

    void set_pass(std::int64_t pass) {
        if constexpr (requires { model_.set_training_passes(pass); }) model_.set_training_passes(pass);
    }

    [[nodiscard]] std::shared_ptr<DistributedDataParallel> make_ddp(ProcessGroup& group,
                                                                    DistributedDataParallelOptions options) {
        if constexpr (makes_ddp) {
            return model_.make_ddp(group);
        } else {
            return std::make_shared<DistributedDataParallel>(group, model_, std::move(options));
        }
    }

    static constexpr bool makes_ddp = requires(Model& model, ProcessGroup& group) { model.make_ddp(group); };
    static constexpr bool can_move_values = false;

    /// Does nothing: the model keeps its values.
    template <class Sharded>
    void use_value_memory(Sharded& /*sharded*/) {}

    /// Does nothing: the model's gradients are copied to their buckets.
    void use_gradient_memory(DataParallelSteps& /*steps*/) {}

    template <class Dataset>
    class Batches {
      public:
        Batches(TrainerComputation& computation, const Dataset& dataset, const ShardBatches& indices,
                const DataLoaderOptions& options)
            : indices_(indices),
              loader_(dataset, indices, options, collation(dataset, computation.pixel_scale_)) {}

        [[nodiscard]] std::size_t next() {
            batch_ = &loader_.next();
            samples_ = indices_[next_++].size();
            return samples_;
        }

        [[nodiscard]] const auto& batch() const noexcept { return *batch_; }
        [[nodiscard]] std::size_t samples() const noexcept { return samples_; }

      private:
        using Sample = LoadedSample<Dataset>;
        using Images = std::tuple<dptk::Tensor<Scalar>, std::vector<std::int32_t>>;

        [[nodiscard]] static auto collation(const Dataset& dataset, double pixel_scale) {
            if constexpr (std::same_as<Dataset, ImageDataset>) {
                return LabeledCollation<Sample, Scalar, Images>(
                    {{dataset.channels(), dataset.height(), dataset.width()},
                     dataset.classes(),
                     pixel_scale});
            } else {
                return DefaultCollation<SampleOf<Dataset>>();
            }
        }

        using Collation = decltype(collation(std::declval<const Dataset&>(), 1));

        const ShardBatches& indices_;
        std::size_t next_ = 0;
        std::size_t samples_ = 0;
        BatchReader<Dataset, Collation> loader_;
        const typename Collation::Batch* batch_ = nullptr;  // in the loader
    };

    template <class LoadedBatches>
    void forward(const LoadedBatches& batches, Totals& totals) {
        using Batch = std::remove_cvref_t<decltype(batches.batch())>;
        static_assert(
            requires(const Batch& batch) {
                { model_.forward(batch, mode_) } -> std::convertible_to<nn::LossResult>;
            },
            "dptk: the model has no forward(batch, mode) for the batches of this dataset; "
            "dptk/train/trainable_model.hpp tells their type");
        const nn::LossResult result = model_.forward(batches.batch(), mode_);
        image_ = [&batch = batches.batch()](std::size_t i) { return image_in(batch, i); };
        totals.add(result, batches.samples());
    }

    [[nodiscard]] BatchOutputs outputs(std::size_t samples) const {
        if constexpr (requires { model_.outputs(); }) {
            if (samples > 0) return model_.outputs();
            return {};
        } else {
            throw ArgumentError("Trainer: callbacks ask for the model's outputs, but it has no outputs()");
        }
    }

    [[nodiscard]] Image image(std::size_t i) const { return image_(i); }

    template <std::invocable<std::size_t> OnReady>
    void backward(OnReady&& on_ready) {
        if constexpr (marks_ready) {
            model_.backward(std::forward<OnReady>(on_ready));
        } else {
            model_.backward();
        }
    }

    [[nodiscard]] auto& model() noexcept { return state_; }

  private:
    template <class Batch>
    [[nodiscard]] static Image image_in(const Batch& batch, std::size_t i) {
        if constexpr (requires { Shape(std::get<0>(batch).shape()); }) {
            const auto& values = std::get<0>(batch);
            const Shape shape(values.shape().begin() + 1, values.shape().end());
            const std::size_t size = element_count(shape);
            const auto* const first = values.data() + i * size;
            return sample_image(std::vector<float>(first, first + size), shape);
        } else {
            return {};
        }
    }

    static constexpr bool marks_ready =
        requires(Model& model, void (*on_ready)(std::size_t)) { model.backward(on_ready); };

    Model& model_;
    RowMajorModel<Model, Scalar> state_;
    double pixel_scale_;
    nn::Mode mode_ = nn::Mode::train;
    std::function<Image(std::size_t)> image_;  // of a sample of the last forward's batch
};

}  // namespace DPTK_NAMESPACE::detail
