/// Trainer for libtorch modules: TrainableModule makes a model of a module and a loss, so that callbacks,
/// checkpoints and resumed runs are those of dptk's own networks.
#pragma once

#include "dptk/adapters/libtorch.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "dptk/comm/process_group.hpp"
#include "dptk/control/process/signal_delay.hpp"
#include "dptk/core/config.hpp"
#include "dptk/core/detail/fnv1a.hpp"
#include "dptk/core/tensor.hpp"
#include "dptk/nn/graph.hpp"
#include "dptk/nn/host_call.hpp"
#include "dptk/nn/loss.hpp"
#include "dptk/train/batch_outputs.hpp"

namespace DPTK_NAMESPACE::libtorch {

/// Computes the mean loss, a tensor of one element, from a module's output and the targets.
using Loss = std::function<torch::Tensor(const torch::Tensor& output, const torch::Tensor& target)>;

/// A TrainableModel of a libtorch module, in host memory, and a loss:
///
///     Net net;
///     dptk::libtorch::TrainableModule model(net);      // cross-entropy
///     dptk::Trainer trainer(group, model, {.epochs = 30, .sgd = {.lr = 0.01, .momentum = 0.9}});
///     trainer.add(dptk::Checkpoint("runs/flowers"));   // PyTorch reads its model.safetensors
///     trainer.fit(training_samples, test_samples);
///
/// Samples are those of an ImageDataset, or pairs that begin with an Image or a contiguous range of numbers.
/// Targets are numbers or ranges of numbers; the module gets integers as a tensor of int64 of shape [n], and
/// other numbers in their own type. A prediction is the largest output of a sample, and is counted if targets
/// are integers and outputs have the shape [n, classes].
///
/// Before each forward in training, the seed of libtorch's generators becomes a hash of `seed`, the rank and
/// the number of the pass, so that a run that continues drops the same elements.
///
/// Parameters that do not require a gradient are saved, and not trained.
template <class Module>
class TrainableModule {
  public:
    /// The module must outlive this object.
    explicit TrainableModule(
        Module& module,
        Loss loss = [](const torch::Tensor& output,
                       const torch::Tensor& target) { return torch::cross_entropy_loss(output, target); },
        std::uint64_t seed = 0)
        : module_(module), loss_function_(std::move(loss)), seed_(seed), parameters_(module) {}

    /// Calls the sink for each parameter.
    void for_each_parameter(ParameterSink& sink) { parameters_.for_each_parameter(sink); }

    /// Calls `sink(nn::NamedBuffer)` for each buffer.
    template <class Sink>
    void for_each_buffer(Sink&& sink) {
        for (const auto& item : module_.named_buffers()) {
            if (!item.value().defined()) continue;
            const c10::IntArrayRef sizes = item.value().sizes();
            sink(nn::NamedBuffer{item.key(), Shape(sizes.begin(), sizes.end()),
                                 detail::memory_of(item.key(), item.value())});
        }
    }

    /// Returns the mean loss of a batch, and for classifications the number of correct predictions.
    template <class Input, class Target>
    nn::LossResult forward(const std::tuple<Input, Target>& batch, nn::Mode mode) {
        const SignalDelay delay;
        const bool is_training = mode == nn::Mode::train;
        module_.train(is_training);
        if (is_training) {
            module_.zero_grad();
            torch::manual_seed(dptk::detail::fnv1a(dptk::detail::text(seed_, ' ', rank_, ' ', pass_)));
        }
        const torch::AutoGradMode gradients(is_training);
        const torch::Tensor target = target_of(std::get<1>(batch));
        const torch::Tensor output = module_.forward(tensor_of(std::get<0>(batch)));
        torch::Tensor loss = loss_function_(output, target);
        nn::LossResult result{.loss = loss.template item<double>()};
        if (output.dim() == 2 && target.dim() == 1 && target.scalar_type() == torch::kInt64)
            result.correct =
                static_cast<std::size_t>(output.argmax(1).eq(target).sum().template item<std::int64_t>());
        if (is_training) {
            loss_ = std::move(loss);
        } else {
            output_ = output;
            target_ = target;
        }
        return result;
    }

    /// Returns the outputs of the last forward in evaluation. Throws ArgumentError if it was no
    /// classification.
    [[nodiscard]] BatchOutputs outputs() const {
        if (output_.dim() != 2 || target_.dim() != 1 || target_.scalar_type() != torch::kInt64)
            throw ArgumentError(
                "TrainableModule: the outputs are not of shape [n, classes], or targets no "
                "integers");
        const torch::Tensor scores = output_.to(torch::kFloat).contiguous();
        const torch::Tensor labels = target_.to(torch::kInt32).contiguous();
        BatchOutputs outputs{
            .classes = static_cast<std::size_t>(scores.size(1)), .scores = {}, .labels = {}, .positions = {}};
        outputs.scores.assign(scores.template data_ptr<float>(),
                              scores.template data_ptr<float>() + scores.numel());
        outputs.labels.assign(labels.template data_ptr<std::int32_t>(),
                              labels.template data_ptr<std::int32_t>() + labels.numel());
        return outputs;
    }

    /// Lets autograd compute the gradients of the last forward in training.
    void backward() {
        const SignalDelay delay;
        std::exchange(loss_, torch::Tensor()).backward();
    }

    /// Sets the number of the next forward pass in training.
    void set_training_passes(std::int64_t number) noexcept { pass_ = number; }

    /// Makes the libtorch::DistributedDataParallel of the module. Collective, blocks.
    [[nodiscard]] std::shared_ptr<dptk::DistributedDataParallel> make_ddp(ProcessGroup& group) {
        rank_ = group.rank();
        return std::make_shared<DistributedDataParallel>(group, module_);
    }

  private:
    /// Returns a tensor over elements that outlive it. Bytes become float.
    template <class T>
    [[nodiscard]] static torch::Tensor tensor_of(const dptk::Tensor<T>& elements) {
        const std::vector<std::int64_t> sizes(elements.shape().begin(), elements.shape().end());
        torch::Tensor tensor = torch::from_blob(const_cast<T*>(elements.data()), sizes,
                                                torch::TensorOptions(c10::CppTypeToScalarType<T>::value));
        return std::is_same_v<T, std::uint8_t> ? tensor.to(torch::kFloat) : tensor;
    }

    template <class T>
    [[nodiscard]] static torch::Tensor target_of(const dptk::Tensor<T>& elements) {
        const torch::Tensor tensor = tensor_of(elements);
        return std::is_integral_v<T> ? tensor.to(torch::kInt64).flatten() : tensor;
    }

    template <class T>
    [[nodiscard]] static torch::Tensor target_of(const std::vector<T>& elements) {
        using Element = std::conditional_t<std::is_integral_v<T>, std::int64_t, T>;
        const std::vector<Element> converted(elements.begin(), elements.end());
        return torch::tensor(converted, torch::TensorOptions(c10::CppTypeToScalarType<Element>::value));
    }

    Module& module_;
    Loss loss_function_;
    std::uint64_t seed_;
    detail::ModuleParameters parameters_;
    torch::Tensor loss_;             // of the last forward in training
    torch::Tensor output_, target_;  // of the last forward in evaluation
    std::int64_t pass_ = 0;
    int rank_ = 0;
};

}  // namespace DPTK_NAMESPACE::libtorch
