/// Callback, code of the program that a Trainer calls at certain points of a run, and TrainingRun, what
/// callbacks see of the run.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "dptk/comm/process_group.hpp"
#include "dptk/core/config.hpp"
#include "dptk/core/parameter_ref.hpp"
#include "dptk/data/image.hpp"
#include "dptk/ddp/statistics.hpp"
#include "dptk/train/batch_outputs.hpp"
#include "dptk/train/epoch_result.hpp"
#include "dptk/train/training_state.hpp"

namespace DPTK_NAMESPACE {

/// Where a training run is. The same on all ranks, except for durations.
struct TrainingStatus {
    int epoch = 0;            ///< The current epoch, counted from 0.
    int epochs = 0;           ///< The planned number of epochs.
    std::size_t batch = 0;    ///< The number of steps done in this epoch.
    std::size_t batches = 0;  ///< The number of steps of this epoch.
    std::int64_t step = 0;    ///< The number of steps done since the beginning of the run.
    /// Loss and accuracy of this epoch: up to now in Callback::train_summary(), and final from there on.
    EpochResult training = {};
    double samples_per_second =
        0;  ///< Of this epoch up to now, over all ranks; set together with `training`.
    /// Loss and accuracy of the last evaluation, from Callback::test_summary() on.
    EpochResult test = {};
    /// How often the ranks of an elastic job have changed since the run began.
    int changes = 0;
    /// Why the run, or an evaluation after it, ends early; empty unless it does.
    std::string stop_reason = {};

    /// Returns the epochs done, with fractions.
    [[nodiscard]] double epochs_done() const noexcept {
        return epoch + (batches == 0 ? 0 : static_cast<double>(batch) / static_cast<double>(batches));
    }
};

/// The training run that a callback belongs to.
class TrainingRun {
  public:
    virtual ~TrainingRun() = default;

    /// Returns where the run is.
    [[nodiscard]] const TrainingStatus& status() const noexcept { return status_; }

    /// Returns the ranks that train together.
    [[nodiscard]] virtual ProcessGroup& group() noexcept = 0;

    /// Returns the parameters, in the backend's layout. Their gradients are averages only if
    /// Callback::gradients() or Callback::reads_averages() of a callback says so.
    [[nodiscard]] virtual std::span<const ParameterRef> parameters() const = 0;

    /// Returns the learning rate of the next step.
    [[nodiscard]] virtual double lr() const = 0;

    /// Returns the learning rate of the options.
    [[nodiscard]] virtual double initial_lr() const = 0;

    /// Sets the learning rate of subsequent steps. Call it on all ranks with the same value.
    virtual void set_lr(double lr) = 0;

    /// Returns the outputs for this rank's batch of the evaluation. Only in Callback::test_batch(); they are
    /// valid until it returns. On a GPU, the first call for a batch blocks until they are on the host. Throws
    /// ArgumentError outside of test_batch().
    [[nodiscard]] virtual const BatchOutputs& test_outputs() = 0;

    /// Returns sample `i` of the same batch as an image, in which the network's lowest input value is 0 and
    /// the highest one 255; without pixels if the input is not an image of 1 or 3 channels. On a GPU, blocks
    /// until it is on the host. Throws ArgumentError outside of Callback::test_batch(), or if there is no
    /// such sample.
    [[nodiscard]] virtual Image test_image(std::size_t i) = 0;

    /// Returns the sums of this rank's times over the steps of the run's process so far; nullopt if they are
    /// not measured, as on a GPU, for which the host does not wait, and with reproducible shards.
    [[nodiscard]] virtual std::optional<StepTimes> step_times() const = 0;

    /// Returns the 2-norm of the averaged gradients of the last step, or nullopt if they are on a GPU, or
    /// with reproducible shards or a sharded optimizer. Only in Callback::step() and the calls after it.
    /// Collective.
    [[nodiscard]] virtual std::optional<double> gradient_norm() = 0;

    /// Returns a copy of the run's state. Blocks until the device is done with the last step. Tensors of a
    /// sharded optimizer can be fetched until the next step. Collective. Throws NonFiniteLossError on all
    /// ranks if the loss of the epoch up to now is not finite.
    [[nodiscard]] virtual TrainingState state() = 0;

    /// Continues from a state that state() returned, in a run with any number of ranks. If it has tensors of
    /// a sharded optimizer, Checkpoint must have saved and read it. Only in Callback::train_begin().
    /// Collective. Throws ArgumentError on all ranks if the model, the optimizer or the dataset is another
    /// one.
    virtual void restore(const TrainingState& state) = 0;

    /// Returns elements that have the layout of parameter `i`, such as an average of its values, row-major.
    [[nodiscard]] virtual StateTensor to_row_major(std::size_t i, std::string name, const void* elements) = 0;

    /// Converts a tensor that to_row_major() returned to elements in the layout of parameter `i`. Throws
    /// ArgumentError if its shape or type differs.
    virtual void from_row_major(std::size_t i, const StateTensor& tensor, void* elements) = 0;

    /// Ends the run after the current step or batch of an evaluation or, in Callback::epoch_end(), after the
    /// epoch. Call it on all ranks at the same point. `reason` follows "training ended early: ".
    void stop(std::string reason) { status_.stop_reason = std::move(reason); }

  protected:
    TrainingStatus status_;  ///< What status() returns.
};

/// Functions that a Trainer calls, on all ranks at the same points, so that callbacks may use collectives:
/// train_begin, [epoch_begin, {batch_begin, gradients, step, train_summary, batch_end}*, test_begin,
/// test_batch*, test_summary, test_end, epoch_end]*, train_end. Several callbacks are called in the order in
/// which they were added. Those that a class does not override do nothing. Each fit() is a new run, in which
/// status().step is 0 in train_begin() unless Checkpoint has continued an earlier run: a callback then begins
/// with a new state.
///
/// In an elastic job, a change of the ranks may interrupt each function that communicates, and steps. All
/// ranks, also new ones, then continue as from a checkpoint: train_begin, in which status().changes is not 0,
/// and restore() with what save() has added at the last of these points: after the optimizer's step, after
/// batch_end, before an evaluation, and after epoch_end. What followed that point is repeated, with the same
/// values. save() is called at each of these points, and must not communicate then.
///
///     struct PrintLoss : dptk::Callback {
///         void epoch_end(dptk::TrainingRun& run) override {
///             if (run.group().rank() == 0) std::printf("%f\n", run.status().training.loss);
///         }
///     };
class Callback {
  public:
    virtual ~Callback() = default;
    virtual void train_begin(TrainingRun& /*run*/) {}  ///< Before everything else.
    virtual void epoch_begin(TrainingRun& /*run*/) {}  ///< Also if the run continues within an epoch.
    virtual void batch_begin(TrainingRun& /*run*/) {}  ///< Before a step; may set the learning rate.
    /// Before the optimizer's step, which uses the gradients. They are averaged over the ranks by now, if a
    /// class overrides this function. All ranks must change them in the same way. Trainer::add() rejects such
    /// a class if a step runs as a CUDA graph, or with TrainerOptions::fused_step or a sharded optimizer.
    virtual void gradients(TrainingRun& /*run*/) {}
    /// Whether the callback reads averaged gradients from TrainingRun::parameters() in functions after
    /// gradients(). If no callback does, and none overrides gradients(), they may be this rank's own ones.
    [[nodiscard]] virtual bool reads_averages() const { return false; }
    virtual void step(TrainingRun& /*run*/) {}  ///< After the optimizer has updated the values.
    /// 20 to 39 times in an epoch, or after each step if it has fewer than 20: the status has the loss up to
    /// now.
    virtual void train_summary(TrainingRun& /*run*/) {}
    virtual void batch_end(TrainingRun& /*run*/) {}   ///< After a step, which is counted by now.
    virtual void test_begin(TrainingRun& /*run*/) {}  ///< Before an evaluation.
    virtual void test_batch(TrainingRun& /*run*/) {}  ///< After each batch of an evaluation: test_outputs().
    virtual void test_summary(TrainingRun& /*run*/) {}  ///< The status has the evaluation's result.
    virtual void test_end(TrainingRun& /*run*/) {}      ///< After an evaluation.
    virtual void epoch_end(TrainingRun& /*run*/) {}     ///< After the evaluation of an epoch.
    virtual void train_end(TrainingRun& /*run*/) {}     ///< At the end, also if the run ends early.

    /// Adds what the callback needs to continue.
    virtual void save(TrainingRun& /*run*/, TrainingState& /*state*/) {}
    /// Continues from what save() has added.
    virtual void restore(TrainingRun& /*run*/, const TrainingState& /*state*/) {}
};

}  // namespace DPTK_NAMESPACE
