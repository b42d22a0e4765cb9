/// TrainableModel, what a Trainer needs of a model that is not one of dptk's networks.
#pragma once

#include <concepts>
#include <cstddef>
#include <type_traits>

#include "dptk/core/config.hpp"
#include "dptk/ddp/parameters.hpp"
#include "dptk/nn/host_call.hpp"
#include "dptk/nn/loss.hpp"

namespace DPTK_NAMESPACE {

/// A model of a program, whose parameters are in host memory, row-major, and of type float, or of the model's
/// type `Scalar` if it has one:
///
///     class Model {
///       public:
///         void for_each_parameter(auto& sink);  // see ddp/parameters.hpp
///
///         /// Returns the mean loss of the samples of a batch, and for classifiers the number of correct
///         /// predictions.
///         dptk::nn::LossResult forward(const std::tuple<dptk::Tensor<float>, std::vector<int>>& batch,
///                                      dptk::nn::Mode mode);
///
///         /// Computes the gradients of the mean loss of the last forward() in Mode::train.
///         void backward();
///     };
///
/// The type of a batch depends on the dataset's samples, as data/collate.hpp lists. That of an ImageDataset
/// is a tuple of a Tensor<Scalar> of shape [n, channels, height, width], multiplied by
/// TrainerOptions::pixel_scale, and a std::vector<std::int32_t> of labels. Batches have at least one sample.
/// forward() may be a template.
///
/// A model may also have these members:
/// - backward(on_ready) instead of backward(): it calls on_ready(i) as soon as the gradient of parameter i is
///   complete. TrainerOptions::ready must be Ready::at_synchronize otherwise.
/// - for_each_buffer(sink), which calls sink(nn::NamedBuffer) for each buffer, such as running statistics:
///   they follow rank 0's, and checkpoints have them.
/// - set_training_passes(number), as nn::Network has it: it is called before each forward pass in training,
///   and random numbers that depend on it are the same ones in a run that continues.
/// - outputs(), which returns the BatchOutputs of the last forward() without the samples' positions, for
///   callbacks that ask for them, such as ClassReport.
/// - make_ddp(group), which returns a std::shared_ptr of a DistributedDataParallel or of a class that is
///   derived from it.
template <class M>
concept TrainableModel = requires(M& model, void (*on_ready)(std::size_t)) {
    requires requires { model.backward(); } || requires { model.backward(on_ready); };
};

}  // namespace DPTK_NAMESPACE
