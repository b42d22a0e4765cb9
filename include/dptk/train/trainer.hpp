/// Trainer, a training loop: it combines sampler, DDP (or ReproducibleDataParallel or ShardedOptimizer),
/// loss, optimizer and callbacks, for a classifier on dptk's own networks or for a model of the program. A
/// network computes its gradients directly in DDP's buckets. TrainerComputation has the parts that depend on
/// the model.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "dptk/comm/agreement.hpp"
#include "dptk/comm/detail/elastic_group.hpp"
#include "dptk/comm/process_group.hpp"
#include "dptk/core/config.hpp"
#include "dptk/core/detail/algorithms.hpp"
#include "dptk/core/parameter_ref.hpp"
#include "dptk/core/trace.hpp"
#include "dptk/data/compare_ranks.hpp"
#include "dptk/data/data_loader.hpp"
#include "dptk/data/dataset.hpp"
#include "dptk/data/distributed_sampler.hpp"
#include "dptk/data/fingerprint.hpp"
#include "dptk/data/image_dataset.hpp"
#include "dptk/ddp/data_parallel_steps.hpp"
#include "dptk/ddp/detail/model_parameters.hpp"
#include "dptk/ddp/detail/tied_parameters.hpp"
#include "dptk/ddp/distributed_data_parallel.hpp"
#include "dptk/ddp/elastic_state.hpp"
#include "dptk/ddp/reproducible.hpp"
#include "dptk/ddp/sharded_optimizer.hpp"
#include "dptk/ddp/statistics.hpp"
#include "dptk/nn/host_call.hpp"
#include "dptk/train/callback.hpp"
#include "dptk/train/detail/check_options.hpp"
#include "dptk/train/detail/computation.hpp"
#include "dptk/train/detail/host_network_computation.hpp"
#include "dptk/train/detail/model_computation.hpp"
#include "dptk/train/detail/model_state.hpp"
#include "dptk/train/detail/optimizer_choice.hpp"
#include "dptk/train/detail/parameter_selection.hpp"
#include "dptk/train/detail/shard_batches.hpp"
#include "dptk/train/detail/state_bytes.hpp"
#include "dptk/train/epoch_result.hpp"
#include "dptk/train/non_finite_loss.hpp"
#include "dptk/train/trainer_options.hpp"

namespace DPTK_NAMESPACE {

namespace detail {

/// Whether a class has a function gradients() that is not Callback's.
template <class C>
inline constexpr bool overrides_gradients =
    !requires { requires std::same_as<decltype(&C::gradients), void (Callback::*)(TrainingRun&)>; };

}  // namespace detail

/// Trains a model on this rank's share of a dataset, and evaluates it. The model is an nn::Network, which
/// then has the softmax cross-entropy as its loss, or one of the program's own with its own loss: see
/// TrainableModel. libtorch::TrainableModule makes one of a libtorch module.
///
///     dptk::Trainer trainer(group, net, {.epochs = 30, .sgd = {.lr = 0.01, .momentum = 0.9}});
///     trainer.add(dptk::LearningRate(dptk::CosineSchedule({.total = 30, .warmup = 3})));
///     trainer.add(dptk::Checkpoint("runs/flowers"));
///     trainer.fit(training_images, test_images);  // continues where runs/flowers ends
template <class Model>
class Trainer : public TrainingRun {
    using Computation = detail::TrainerComputation<Model>;
    using Sharded = typename detail::ModelState<Computation>::Sharded;

  public:
    using Scalar = typename Computation::Scalar;  ///< The type of the parameters' elements.

    /// Broadcasts rank 0's parameters to all ranks, and freezes those that the options name, and no others.
    /// The values of a network may be moved to memory that the ranks share. Collective. Group and model must
    /// outlive the trainer, and a network's GPU must be the current device in all calls. Throws the
    /// exceptions of DistributedDataParallel, ReproducibleDataParallel and SGD. Throws ArgumentError on all
    /// ranks for a batch size of 0, fewer than 1 epoch, two of comm hook, reproducible shards and sharded
    /// optimizer, patterns that match no parameter or freeze all of them, options that the model does not
    /// support, or a model whose parameters are not as TrainableModel asks, and MismatchError on all ranks if
    /// options differ between ranks.
    Trainer(ProcessGroup& group, Model& model, TrainerOptions options)
        : group_(group), options_(std::move(options)), model_(model), computation_(model, options_) {
        if (!Computation::is_on_host) group.refuse_elastic("Trainer: a network on a GPU");
        check_options(model);
        computation_.join(group);
        computation_.set_frozen(selection_.frozen);
        broadcast_frozen(model, 0);
        if (options_.reproducible_shards > 0)
            reproducible_.emplace(group, ParameterSource(model), options_.reproducible_shards, frozen_);
        make_totals();
        selection_.set_groups(computation_.optimizer());
        if (reproducible_) return;
        make_steps();
        has_buffers_ = computation_.has_buffers();
        is_synchronized_ = computation_.is_synchronized();
    }

    /// Adds a callback, which sees what happens from now on. Add the same ones in the same order on all
    /// ranks. Returns the trainer's copy. Throws ArgumentError if the class overrides Callback::gradients(),
    /// and the option cuda_graph is set, because a graph does not call functions of the host; also if the
    /// class overrides gradients(), or its reads_averages() returns true, and the option fused_step or
    /// shard_optimizer is set, because no rank then has all averages.
    template <std::derived_from<Callback> C>
    C& add(C callback) {
        constexpr bool has_gradients = detail::overrides_gradients<C>;
        const bool reads_averages = has_gradients || callback.reads_averages();
        const char* excluded = nullptr;
        if (has_gradients && options_.cuda_graph) excluded = "cuda_graph";
        if (reads_averages && options_.fused_step == FusedStep::yes) excluded = "fused_step";
        if (reads_averages && options_.shard_optimizer) excluded = "shard_optimizer";
        if (excluded != nullptr)
            throw ArgumentError(detail::text("Trainer: a callback with ",
                                             has_gradients ? "gradients()" : "reads_averages()",
                                             " cannot be combined with ", excluded));
        reads_averages_ = reads_averages_ || reads_averages;
        auto own = std::make_unique<C>(std::move(callback));
        C& added = *own;
        callbacks_.push_back(std::move(own));
        return added;
    }

    /// Trains until options.epochs are done or a callback calls stop(), and evaluates after each epoch.
    /// Returns the final status. Collective. Throws as train_epoch() and the callbacks do, and MismatchError
    /// on all ranks if the ranks' datasets differ: see compare_datasets().
    ///
    /// In an elastic job, the run continues whenever ranks are lost or join, as from a checkpoint at the end
    /// of the last step; an evaluation that was interrupted is repeated. Until fit() is called, each process
    /// is a group of one rank. A program can call it once then.
    template <IndexableDataset Training, IndexableDataset Test>
    TrainingStatus fit(const Training& training, const Test& test) {
        status_ = {.epochs = options_.epochs};
        continued_.reset();
        stage_ = Stage::begin;
        choose_steps();
        dataset_fingerprint_ = detail::text(compare_datasets(group_, training, "training datasets"));
        compare_datasets(group_, test, "test datasets");
        if (group_.is_elastic()) {
            run_elastic(training, test);
        } else {
            run(training, test);
        }
        return status_;
    }

    /// Trains one epoch, in the sample order that (seed, epoch) determines, with at most batch_size samples
    /// per step and rank (or shard). Collective. With a GPU, the host waits for the GPU only before
    /// Callback::train_summary(), in the first step of each batch size, and if the GPU has not yet loaded the
    /// previous batches.
    ///
    /// A sample for a network is that of an ImageDataset, or a pair or tuple that begins with an Image or a
    /// contiguous range of numbers, and the sample's label, of an integer type. For other models see
    /// TrainableModel.
    ///
    /// Throws MismatchError on all ranks if the dataset's size differs between ranks, ArgumentError on all
    /// ranks if its images do not have the shape of the network's input, and NonFiniteLossError on all ranks,
    /// before Callback::train_summary(), if the loss is no longer finite. Throws SampleError if a sample
    /// cannot be read, its values do not have the shape of the network's input, or its label is not one of
    /// the network's classes.
    template <IndexableDataset Dataset>
    EpochResult train_epoch(const Dataset& dataset, int epoch) {
        group_.refuse_elastic("train_epoch()");
        status_.epoch = epoch;
        status_.epochs = options_.epochs;
        status_.batch = 0;
        status_.stop_reason.clear();
        choose_steps();
        return run_epoch(dataset);
    }

    /// Returns loss and accuracy over the dataset, with each sample counted once, in nn::Mode::evaluate. Ends
    /// early, with fewer samples, if a callback calls stop(). If the model has buffers, first sends rank 0's
    /// values and buffers to all ranks. Collective. Throws MismatchError on all ranks if the dataset's size
    /// differs between ranks.
    template <IndexableDataset Dataset>
    EpochResult evaluate(const Dataset& dataset) {
        const detail::PurposeScope here(group_.engine(), {.call = "evaluate()", .owner = "Trainer"});
        check(dataset);
        const detail::ShardBatches indices(
            own_samplers(dataset.size(), {.shuffle = false, .padding = Padding::none}, 0),
            options_.batch_size);
        call(&Callback::test_begin);
        const auto begin = std::chrono::steady_clock::now();
        if (has_buffers_) broadcast_values();
        const ModeScope mode(computation_, nn::Mode::evaluate);
        Batches<Dataset> batches(computation_, dataset, indices,
                                 loader_options<Dataset>(options_.evaluation_transform));
        for (Totals& totals : evaluation_) totals.reset();
        const std::string stopped_before = std::exchange(status_.stop_reason, {});
        const auto stops = [&] { return !status_.stop_reason.empty(); };
        const std::size_t most = most_shards();
        for (std::size_t i = 0; i < indices.steps() * most && !stops(); ++i) {
            const std::size_t shard = i % most, own = i / most * indices.shards() + shard;
            const bool has_batch = shard < indices.shards();
            if (has_batch && load_next(batches) > 0) forward(batches, evaluation_[shard]);
            const TestBatchScope batch(*this, has_batch ? indices[own] : std::vector<std::size_t>());
            call(&Callback::test_batch);
        }
        const EpochResult result = to_result(sums(evaluation_), begin);
        if (!stops()) {
            status_.test = result;
            call(&Callback::test_summary);
        }
        call(&Callback::test_end);
        if (!stops()) status_.stop_reason = stopped_before;
        return result;
    }

    /// Returns the group.
    [[nodiscard]] ProcessGroup& group() noexcept override { return group_; }

    /// Returns the parameters, in the backend's layout.
    [[nodiscard]] std::span<const ParameterRef> parameters() const override {
        return reproducible_ ? reproducible_->parameters() : data_parallel().parameters();
    }

    /// Returns the learning rate of the next step.
    [[nodiscard]] double lr() const override { return optimizer().lr(); }

    /// Returns the learning rate of the options.
    [[nodiscard]] double initial_lr() const override { return detail::initial_lr(options_); }

    /// Sets the learning rate of subsequent steps. Call it on all ranks with the same value.
    void set_lr(double lr) override { optimizer().set_lr(lr); }

    /// See TrainingRun.
    [[nodiscard]] const BatchOutputs& test_outputs() override {
        const std::vector<std::size_t>& positions = test_positions("test_outputs()");
        if (!test_outputs_) {
            test_outputs_ = computation_.outputs(positions.size());
            test_outputs_->positions = positions;
        }
        return *test_outputs_;
    }

    /// See TrainingRun.
    [[nodiscard]] Image test_image(std::size_t i) override {
        const std::size_t samples = test_positions("test_image()").size();
        if (i >= samples)
            throw ArgumentError(detail::text("Trainer: test_image(): expected a sample of the batch, below ",
                                             samples, ", got ", i));
        return computation_.image(i);
    }

    /// See TrainingRun.
    [[nodiscard]] std::optional<StepTimes> step_times() const override {
        if (!Computation::is_on_host || reproducible_) return std::nullopt;
        return data_parallel().statistics().all_steps;
    }

    /// Returns whether the ranks share the work of the optimizer's step: see TrainerOptions::fused_step.
    [[nodiscard]] bool has_fused_steps() const noexcept { return sharded_ && sharded_->is_fused(); }

    /// See TrainingRun.
    [[nodiscard]] std::optional<double> gradient_norm() override {
        if (sharded_ && !options_.shard_optimizer) return sharded_->gradient_norm();
        if (!Computation::is_on_host || !ddp_) return std::nullopt;
        return ddp_->clip_grad_norm(std::numeric_limits<double>::infinity()).value();
    }

    /// See TrainingRun. Collective. The state of a comm hook is not part of it. Throws NonFiniteLossError on
    /// all ranks if the epoch's loss is not finite.
    [[nodiscard]] TrainingState state() override {
        TrainingState state;
        model_state().save(state);
        const bool is_within_epoch = status_.batch > 0 && !is_epoch_done_;
        if (is_within_epoch) {
            const std::array<double, 3> totals = sums(training_);
            check_finite(totals[0]);
            save_sums(state, totals);
        }
        save_status(state, status_.epoch + (is_epoch_done_ ? 1 : 0), is_within_epoch ? status_.batch : 0);
        state.values["trainer.optimizer"] = detail::optimizer_name(options_);
        if (!frozen_.empty()) state.values["trainer.frozen"] = joined(frozen_);
        for (const auto& callback : callbacks_) callback->save(*this, state);
        return state;
    }

    /// See TrainingRun.
    void restore(const TrainingState& state) override {
        on_all_or_none(group_, [&] {
            require_equal(state, "trainer.optimizer", "optimizer", detail::optimizer_name(options_));
            if (state.value("trainer.dataset") != dataset_fingerprint_)
                throw ArgumentError(detail::text(
                    "checkpoint: it was made with another training dataset: files, labels or their order "
                    "have "
                    "changed, or what selects them, such as the seed or the fraction of a random split. "
                    "Continue "
                    "with the files and options of that run, or start a new run in another folder with its "
                    "model.safetensors as weights (its fingerprint is ",
                    state.value("trainer.dataset"), ", this run's is ", dataset_fingerprint_, ")"));
            const auto frozen = state.values.find("trainer.frozen");
            if ((frozen == state.values.end() ? "" : frozen->second) != joined(frozen_))
                throw ArgumentError(
                    "checkpoint: it was made with other frozen parameters: start a new run with its "
                    "model.safetensors as weights to train others");
            model_state().restore(state);
        });
        model_state().restore_sharded(group_, state);
        on_all_or_none(group_, [&] {
            restore_status(state);
            for (const auto& callback : callbacks_) callback->restore(*this, state);
        });
    }

    /// See TrainingRun.
    [[nodiscard]] StateTensor to_row_major(std::size_t i, std::string name, const void* elements) override {
        return model_state().to_row_major(i, std::move(name), elements);
    }

    /// See TrainingRun.
    void from_row_major(std::size_t i, const StateTensor& tensor, void* elements) override {
        model_state().from_row_major(i, tensor, elements);
    }

  private:
    /// What fit() does.
    enum class Stage : std::uint8_t { begin, training, evaluation, end };

    /// The part of the run's state that is not that of model and optimizer, for ElasticState.
    class Progress {
      public:
        explicit Progress(Trainer& trainer) : trainer_(trainer) {}
        [[nodiscard]] std::string state() const { return detail::to_bytes(trainer_.progress()); }
        void restore(const std::string& state, const ProcessGroup& /*group*/) {
            trainer_.received_progress_ = state;
        }

      private:
        Trainer& trainer_;
    };

    template <class Dataset>
    using Batches = typename Computation::template Batches<Dataset>;
    /// Sums over the samples of a shard, in the backend's memory.
    using Totals = typename Computation::Totals;

    void call(void (Callback::*function)(TrainingRun&)) {
        for (const auto& callback : callbacks_) (*callback.*function)(*this);
    }

    [[nodiscard]] detail::ModelState<Computation> model_state() {
        return {computation_, parameters(), sharded_.get(), options_.shard_optimizer};
    }

    /// Runs from the current stage to the end.
    template <class Training, class Test>
    void run(const Training& training, const Test& test) {
        const auto next_epoch = [&] {
            const bool is_over = status_.epoch >= options_.epochs || !status_.stop_reason.empty();
            return is_over ? Stage::end : Stage::training;
        };
        if (stage_ == Stage::begin) {
            call(&Callback::train_begin);
            enter(next_epoch());
        }
        while (stage_ != Stage::end) {
            if (stage_ == Stage::training) {
                run_epoch(training);
                enter(status_.stop_reason.empty() ? Stage::evaluation : Stage::end);
            } else {
                evaluate(test);
                if (!status_.stop_reason.empty()) {
                    enter(Stage::end);
                    break;
                }
                is_epoch_done_ = true;
                call(&Callback::epoch_end);
                is_epoch_done_ = false;
                ++status_.epoch;
                status_.batch = 0;
                continued_.reset();
                enter(next_epoch());
            }
        }
        call(&Callback::train_end);
    }

    /// Begins a stage, which is repeated if the ranks of an elastic job change before its end.
    void enter(Stage stage) {
        stage_ = stage;
        if (!elastic_) return;
        elastic_->note_point(true);
        if (stage == Stage::end) detail::ElasticGroup::finish(group_);  // nobody joins any more
    }

    /// Runs from the beginning to the end, and continues whenever the ranks change.
    template <class Training, class Test>
    void run_elastic(const Training& training, const Test& test) {
        if (elastic_) throw ArgumentError("Trainer: fit() can be called once in an elastic job");
        make_elastic();
        while (true) {
            try {
                elastic_->restore();
                continue_run();
                run(training, test);
                group_.barrier();  // a rank that is lost until here may need this rank's state
                return;
            } catch (const MembershipChanged&) {  // the loop continues with other ranks
            }
        }
    }

    void make_elastic() {
        if constexpr (Computation::is_on_host) {
            if (reproducible_) {
                elastic_ = std::make_unique<ElasticState>(group_, *reproducible_, computation_.optimizer(),
                                                          progress_);
            } else if (sharded_) {
                elastic_ = std::make_unique<ElasticState>(group_, *sharded_, progress_);
            } else {
                elastic_ = std::make_unique<ElasticState>(group_, *ddp_, computation_.optimizer(), progress_);
            }
        }
    }

    /// Continues with the progress that was received, after the ranks have changed. Collective.
    void continue_run() {
        detail::check_equal_tables(group_, "TrainerOptions", detail::options_table(options_));
        detail::check_equal_tables(group_, "training datasets", "fingerprint " + dataset_fingerprint_);
        const auto has_frozen = static_cast<std::uint8_t>(has_joined_ ? 1 : 0);
        const std::vector<std::uint8_t> all = group_.all_gather_value(has_frozen);
        const auto first = detail::find(all, std::uint8_t{1});
        computation_.join(group_);
        broadcast_frozen(model_, first == all.end() ? 0 : static_cast<int>(first - all.begin()));
        has_joined_ = true;
        if constexpr (Computation::is_on_host) {
            if (!reproducible_) computation_.use_gradient_memory(data_parallel());
        }
        make_totals();
        const TrainingState state = detail::state_of_bytes(received_progress_);
        restore_status(state);
        status_.stop_reason = state.value("trainer.stop_reason");
        stage_ = static_cast<Stage>(state.number("trainer.stage"));
        is_told_ = state.number("trainer.is_told") != 0;
        is_epoch_done_ = false;
        if (stage_ == Stage::end) detail::ElasticGroup::finish(group_);
        if (stage_ == Stage::begin) return;
        status_.changes = static_cast<int>(state.number("trainer.changes")) + 1;
        call(&Callback::train_begin);
        for (const auto& callback : callbacks_) callback->restore(*this, state);
    }

    /// Returns what continue_run() needs. Does not communicate.
    [[nodiscard]] TrainingState progress() {
        TrainingState state;
        if (status_.batch > 0) save_sums(state, continued_sums_);
        save_status(state, status_.epoch, status_.batch);
        state.values["trainer.stop_reason"] = status_.stop_reason;
        state.values["trainer.stage"] = detail::text(static_cast<int>(stage_));
        state.values["trainer.is_told"] = is_told_ ? "1" : "0";
        state.values["trainer.changes"] = detail::text(status_.changes);
        for (const auto& callback : callbacks_) callback->save(*this, state);
        return state;
    }

    /// Returns the largest number of shards of a rank.
    [[nodiscard]] std::size_t most_shards() const {
        const auto ranks = static_cast<std::size_t>(group_.size());
        return reproducible_ ? (options_.reproducible_shards + ranks - 1) / ranks : 1;
    }

    void make_totals() {
        const std::size_t shards = reproducible_ ? reproducible_->shards().size() : 1;
        training_.clear();
        evaluation_.clear();
        for (std::size_t i = 0; i < shards; ++i) {
            training_.push_back(computation_.make_totals());
            evaluation_.push_back(computation_.make_totals());
        }
    }

    /// Makes what averages gradients and steps values. Collective.
    void make_steps() {
        if constexpr (Computation::is_on_host) {
            if (options_.shard_optimizer || options_.fused_step == FusedStep::yes) {
                make_sharded();
            } else if (options_.fused_step == FusedStep::automatic && may_fuse()) {
                make_sharded();
                if (!sharded_->shares_memory()) sharded_.reset();  // there was not enough memory to share
            }
        }
        if (!sharded_) make_ddp();
    }

    /// Returns whether fused steps are possible and faster, with the same result on all ranks. Collective.
    [[nodiscard]] bool may_fuse() {
        if (group_.is_elastic() || group_.size() == 1 || Computation::makes_ddp || options_.comm_hook)
            return false;
        const std::vector<ParameterRef> parameters = ParameterSource(model_).collect();
        const bool can_be_sharded = detail::TiedParameters(parameters).ties_values_as_gradients() &&
                                    detail::none_of(parameters, [](const ParameterRef& parameter) {
                                        return static_cast<bool>(parameter.lazy_gradient);
                                    });
        const std::uint8_t is_excluded = can_be_sharded ? 0 : 1;
        return group_.all_reduce_value(is_excluded, ReduceOp::max) == 0 &&
               Sharded::is_fused_by_default(group_, ddp_options());
    }

    void make_sharded() {
        DistributedDataParallelOptions ddp = ddp_options();
        ddp.init_sync = false;  // the values are broadcast after they have been moved
        ShardedOptimizerOptions sharded{.fused_step = FusedStep::yes, .parameters_as_bucket_view = true};
        if (options_.shard_optimizer)
            sharded = {.fused_step = options_.fused_step,
                       .parameters_as_bucket_view = Computation::can_move_values && !group_.is_elastic()};
        sharded_ = std::make_unique<Sharded>(group_, model_, detail::HostOptimizer<Scalar>(options_),
                                             std::move(ddp), sharded);
        selection_.set_groups(*sharded_);
        computation_.use_gradient_memory(*sharded_);
        if (sharded.parameters_as_bucket_view) computation_.use_value_memory(*sharded_);
        sharded_->broadcast_values(0);
    }

    void make_ddp() {
        ddp_ = computation_.make_ddp(group_, ddp_options());
        if (options_.comm_hook) ddp_->set_comm_hook(options_.comm_hook);
        computation_.use_gradient_memory(*ddp_);
    }

    [[nodiscard]] DistributedDataParallelOptions ddp_options() const {
        return {.ready = options_.ready, .parameters_to_ignore = frozen_};
    }

    /// Leaves fused steps, if a callback needs all averages. Collective.
    void choose_steps() {
        if constexpr (Computation::is_on_host) {
            if (!sharded_ || options_.shard_optimizer || options_.fused_step == FusedStep::yes) return;
            const std::uint8_t is_needed = reads_averages_ ? 1 : 0;
            if (group_.all_reduce_value(is_needed, ReduceOp::max) == 0) return;
            computation_.optimizer().set_lr(sharded_->optimizer().lr());
            for (std::size_t i = 0; i < parameters().size(); ++i)
                computation_.optimizer().set_state(i, sharded_->state_on_all(i));
            sharded_.reset();
            make_ddp();
        }
    }

    /// Returns what averages the gradients. Not with reproducible shards.
    [[nodiscard]] DataParallelSteps& data_parallel() const noexcept {
        if (sharded_) return *sharded_;
        return *ddp_;
    }

    [[nodiscard]] auto& optimizer() noexcept {
        if constexpr (Computation::is_on_host) {
            if (sharded_) return sharded_->optimizer();
        }
        return computation_.optimizer();
    }

    [[nodiscard]] const auto& optimizer() const noexcept { return const_cast<Trainer&>(*this).optimizer(); }

    /// Adds the sums over the samples of this epoch up to now, and the position after them.
    void save_sums(TrainingState& state, const std::array<double, 3>& sums) const {
        state.training.push_back(StateTensor::of<double>("trainer.sums", {3}, sums));
        state.values["trainer.sampler"] = sampler_state_.to_text();
    }

    /// Adds what restore_status() reads, except for what save_sums() adds.
    void save_status(TrainingState& state, int epoch, std::size_t batch) const {
        std::vector<double> results;
        for (const EpochResult& result : {status_.training, status_.test})
            results.insert(results.end(),
                           {result.loss, result.accuracy, static_cast<double>(result.samples)});
        state.training.push_back(StateTensor::of<double>("trainer.results", {2, 3}, results));
        state.values["trainer.epoch"] = detail::text(epoch);
        state.values["trainer.batch"] = detail::text(batch);
        state.values["trainer.step"] = detail::text(status_.step);
        state.values["trainer.dataset"] = dataset_fingerprint_;
    }

    /// Continues where the run was. Does not communicate.
    void restore_status(const TrainingState& state) {
        status_.epoch = static_cast<int>(state.number("trainer.epoch"));
        status_.batch = static_cast<std::size_t>(state.number("trainer.batch"));
        status_.step = state.number("trainer.step");
        const std::vector<double> results =
            TrainingState::required(state.training, "trainer.results").template values<double>();
        status_.training = {results.at(0), results.at(1), static_cast<std::size_t>(results.at(2)), 0};
        status_.test = {results.at(3), results.at(4), static_cast<std::size_t>(results.at(5)), 0};
        continued_.reset();
        if (status_.batch == 0) return;
        continued_ = sampler_state_ = SamplerState::from_text(state.value("trainer.sampler"));
        if (continued_->options.seed != options_.seed)
            throw ArgumentError(detail::text("checkpoint: it was made within an epoch whose order has seed ",
                                             continued_->options.seed, ", this run has ", options_.seed,
                                             ": continue with the seed of that run"));
        const std::vector<double> totals =
            TrainingState::required(state.training, "trainer.sums").template values<double>();
        std::copy_n(totals.begin(), continued_sums_.size(), continued_sums_.begin());
    }

    /// Sends rank 0's values and buffers to all ranks. Collective.
    void broadcast_values() {
        if (sharded_) {
            sharded_->broadcast_values(0);
        } else {
            ddp_->broadcast_values(0);
        }
    }

    static void require_equal(const TrainingState& state, const char* name, const char* what,
                              const std::string& own) {
        if (state.value(name) != own)
            throw ArgumentError(detail::text("checkpoint: it was made with another ", what, ": ",
                                             state.value(name), ", this run has ", own));
    }

    [[nodiscard]] static std::string joined(const std::vector<std::string>& names) {
        std::string text;
        for (const std::string& name : names) text += (text.empty() ? "" : " ") + name;
        return text;
    }

    /// Sends a rank's values of the frozen parameters, which are not DDP's. Collective.
    void broadcast_frozen(Model& model, int root) {
        for (const ParameterRef& parameter : ParameterSource(model).collect()) {
            if (!detail::contains(frozen_, parameter.name)) continue;
            const Buffer value = parameter.value_buffer();
            detail::ModelParameters::run(
                group_, {.verb = Verb::broadcast, .input = value, .output = value, .root = root});
        }
    }

    /// Throws NonFiniteLossError if the loss over all ranks is not finite. Collective.
    void check_finite(double loss) {
        if (!std::isfinite(loss))
            detail::throw_non_finite_loss(group_, non_finite_ ? &*non_finite_ : nullptr, status_.epoch, lr());
    }

    /// Trains the rest of the current epoch, after status_.batch steps.
    template <class Dataset>
    EpochResult run_epoch(const Dataset& dataset) {
        const detail::PurposeScope here(group_.engine(), {.call = "train_epoch()", .owner = "Trainer"});
        check(dataset);
        std::vector<DistributedSampler> samplers =
            own_samplers(dataset.size(), {.seed = options_.seed, .padding = Padding::none}, status_.epoch);
        if (continued_) {
            for (DistributedSampler& sampler : samplers) sampler.restore(*continued_);
        } else {
            continued_sums_ = {};
        }
        continued_.reset();
        const DistributedSampler first = samplers.front();
        const detail::ShardBatches indices(std::move(samplers), options_.batch_size, options_.accumulate);
        Batches<Dataset> batches(computation_, dataset, indices, loader_options<Dataset>(options_.transform));
        const std::size_t steps = indices.steps();
        status_.batches = status_.batch + steps;
        epoch_ = {.interval = std::max<std::size_t>(status_.batches / 20, 1),
                  .samples_before = continued_sums_[2],
                  .begin = std::chrono::steady_clock::now()};
        for (Totals& totals : training_) totals.reset();
        non_finite_.reset();
        is_epoch_done_ = false;  // it is true if a callback threw in Callback::epoch_end()
        computation_.drop_stale_graph(group_);
        call(&Callback::epoch_begin);
        if (!is_told_) {  // ranks have changed before all callbacks had been called
            tell_step(steps == 0);
            if (!status_.stop_reason.empty()) return status_.training;
        }
        for (std::size_t done = 1; done <= steps; ++done) {
            call(&Callback::batch_begin);
            step(batches, indices, done - 1);
            ++status_.batch;
            ++status_.step;
            sampler_state_ = first.state(done * options_.batch_size * options_.accumulate);
            note_step(false);
            tell_step(done == steps);
            if (!status_.stop_reason.empty()) return status_.training;
        }
        if (steps == 0) status_.training = to_result(sums(training_), epoch_.begin);
        return status_.training;
    }

    /// Calls the callbacks that follow a step.
    void tell_step(bool is_last) {
        call(&Callback::step);
        if (status_.batch % epoch_.interval == 0 || is_last) {
            status_.training = to_result(sums(training_), epoch_.begin);
            status_.samples_per_second =
                (static_cast<double>(status_.training.samples) - epoch_.samples_before) /
                status_.training.seconds;
            if (is_last && ddp_) computation_.check(*ddp_);
            check_finite(status_.training.loss);
            call(&Callback::train_summary);
            computation_.drop_stale_graph(group_);  // after evaluations with other batch sizes
        }
        call(&Callback::batch_end);
        note_step(true);
    }

    /// Notes that the values are those after the current step; `is_told` says whether the callbacks have been
    /// called.
    void note_step(bool is_told) {
        is_told_ = is_told;
        if (elastic_) elastic_->note_point(false);
    }

    /// Throws on all ranks if the options of any rank are invalid or differ between ranks. Finds what they
    /// say about the model's parameters. Collective.
    void check_options(Model& model) {
        std::string problem = detail::problem_of_options(options_);
        if (problem.empty()) problem = computation_.problem(options_);
        try {
            if (problem.empty()) {
                std::vector<std::string> names;
                for (ParameterRef& parameter : ParameterSource(model).collect()) {
                    computation_.require_usable(parameter);
                    names.push_back(std::move(parameter.name));
                }
                selection_ = detail::select_parameters(names, options_);
                frozen_ = selection_.frozen_names(names);
            }
        } catch (const std::exception& error) {
            problem = error.what();
        }
        detail::check_no_problem<ArgumentError>(group_, problem);
        detail::check_equal_tables(group_, "TrainerOptions", detail::options_table(options_));
    }

    /// Throws MismatchError on all ranks if the dataset's size differs between ranks, since the ranks would
    /// then make different numbers of steps, or its class names. Collective.
    template <class Dataset>
    void check(const Dataset& dataset) {
        detail::check_no_problem<ArgumentError>(group_, computation_.problem_of(dataset));
        detail::check_equal_tables(group_, "datasets", detail::dataset_table(dataset));
    }

    template <class Dataset>
    [[nodiscard]] DataLoaderOptions loader_options(const ImageTransforms& transform) const {
        DataLoaderOptions options{.batch_size = options_.batch_size, .workers = options_.workers};
        if constexpr (std::same_as<Dataset, ImageDataset>) options.workers = options_.workers.value_or(0);
        options.transform = transform;
        return options;
    }

    /// Returns the samplers of this rank's share of the epoch's samples: one sampler, or with reproducible
    /// shards one for each of this rank's shards.
    [[nodiscard]] std::vector<DistributedSampler> own_samplers(std::size_t samples,
                                                               const DistributedSamplerOptions& options,
                                                               int epoch) const {
        std::vector<DistributedSampler> samplers;
        if (reproducible_) {
            for (const std::size_t shard : reproducible_->shards())
                samplers.emplace_back(samples, options_.reproducible_shards, shard, options);
        } else {
            samplers.emplace_back(samples, group_, options);
        }
        for (DistributedSampler& sampler : samplers) sampler.set_epoch(epoch);
        return samplers;
    }

    /// Performs step `index` of the epoch, with one batch from each of this rank's shards, or with several
    /// micro-batches.
    template <class LoadedBatches>
    void step(LoadedBatches& batches, const detail::ShardBatches& indices, std::size_t index) {
        if (reproducible_) {
            for (std::size_t shard = 0; shard < indices.shards(); ++shard) {
                const std::size_t samples = load_next(batches);
                const std::size_t pass =
                    step_index() * options_.reproducible_shards + reproducible_->shards()[shard];
                if (samples > 0)
                    forward_backward(batches, training_[shard], pass, indices,
                                     index * indices.shards() + shard);
                reproducible_->add_shard(samples);
            }
            reproducible_->synchronize();
            call(&Callback::gradients);
            step_values();
            return;
        }
        const std::size_t first = index * options_.accumulate, pass = step_index() * options_.accumulate;
        const std::size_t last = options_.accumulate - 1;
        for (std::size_t i = 0; i < last; ++i) {
            const std::size_t samples = load_next(batches);
            if (samples == 0 && !is_synchronized_) continue;
            forward_backward(batches, training_.front(), pass + i, indices, first + i);
            data_parallel().accumulate(samples);
        }
        const std::size_t samples = load_next(batches);
        computation_.run(indices.is_full_everywhere(index), [&] {
            data_parallel().begin_step(samples);
            if (samples > 0 || is_synchronized_)
                forward_backward(batches, training_.front(), pass + last, indices, first + last,
                                 [&](std::size_t i) {
                                     if (options_.ready == Ready::marked) data_parallel().mark_ready(i);
                                 });
            data_parallel().synchronize();
            call(&Callback::gradients);
            step_values();
        });
    }

    [[nodiscard]] std::size_t step_index() const noexcept { return static_cast<std::size_t>(status_.step); }

    /// Loads the next batch. Returns its number of samples.
    template <class LoadedBatches>
    [[nodiscard]] std::size_t load_next(LoadedBatches& batches) {
        const trace::Span span("load");
        return batches.next();
    }

    template <class LoadedBatches>
    void forward(const LoadedBatches& batches, Totals& totals) {
        const trace::Span span("forward");
        computation_.forward(batches, totals);
    }

    /// `pass` is the number of the pass, on which random numbers depend; the batch is `indices[batch]`. Notes
    /// the first batch after which the sum of losses is not finite; sums in device memory are not read.
    template <class LoadedBatches, std::invocable<std::size_t> OnReady>
    void forward_backward(const LoadedBatches& batches, Totals& totals, std::size_t pass,
                          const detail::ShardBatches& indices, std::size_t batch, OnReady on_ready) {
        computation_.set_pass(static_cast<std::int64_t>(pass));
        forward(batches, totals);
        {
            const trace::Span span("backward");
            computation_.backward(on_ready);
        }
        if constexpr (requires { std::isfinite(totals.loss); }) {
            if (std::isfinite(totals.loss) || non_finite_) return;
            non_finite_ = detail::describe_non_finite_loss(group_.rank(), status_.epoch, status_.step,
                                                           indices[batch], parameters());
        }
    }

    template <class LoadedBatches>
    void forward_backward(const LoadedBatches& batches, Totals& totals, std::size_t pass,
                          const detail::ShardBatches& indices, std::size_t batch) {
        forward_backward(batches, totals, pass, indices, batch, [](std::size_t) {});
    }

    void step_values() {
        if (elastic_) add_step_sums();
        const trace::Span span("optimizer");
        if (sharded_) {
            sharded_->step();
        } else {
            computation_.optimizer().step(parameters());
        }
    }

    /// Returns the sums of loss, correct predictions and samples, over the shards in their order, so that
    /// they do not depend on the number of ranks. Collective.
    [[nodiscard]] std::array<double, 3> sums(const std::vector<Totals>& totals) {
        if (elastic_ && &totals == &training_) return continued_sums_;
        return gathered(totals, &totals == &training_ ? continued_sums_ : std::array<double, 3>{});
    }

    /// Adds the sums of a step, so that none of them is lost with its rank. Collective.
    void add_step_sums() {
        continued_sums_ = gathered(training_, continued_sums_);
        for (Totals& totals : training_) totals.reset();
    }

    /// Returns `sums` with the totals of all ranks added. Collective.
    [[nodiscard]] std::array<double, 3> gathered(const std::vector<Totals>& totals,
                                                 std::array<double, 3> sums) {
        own_sums_.clear();
        for (const Totals& shard : totals) {
            const auto fetched = shard.fetch();
            own_sums_.insert(own_sums_.end(), {fetched.loss, fetched.correct, fetched.samples});
        }
        own_sums_.resize(3 * most_shards());
        all_sums_.resize(own_sums_.size() * static_cast<std::size_t>(group_.size()));
        group_.all_gather(own_sums_, all_sums_);
        for (std::size_t i = 0; i < all_sums_.size(); ++i) sums[i % 3] += all_sums_[i];
        return sums;
    }

    [[nodiscard]] static EpochResult to_result(const std::array<double, 3>& sums,
                                               std::chrono::steady_clock::time_point begin) {
        const double samples = std::max(sums[2], 1.0);
        return {sums[0] / samples, sums[1] / samples, static_cast<std::size_t>(sums[2]),
                std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count()};
    }

    /// Sets the model's mode until the end of the scope.
    class ModeScope {
      public:
        ModeScope(Computation& computation, nn::Mode mode)
            : computation_(computation), before_(computation.mode()) {
            computation_.set_mode(mode);
        }
        ~ModeScope() { computation_.set_mode(before_); }
        ModeScope(const ModeScope&) = delete;
        ModeScope& operator=(const ModeScope&) = delete;

      private:
        Computation& computation_;
        nn::Mode before_;
    };

    /// Makes the outputs of a batch of an evaluation available until the end of the scope.
    class TestBatchScope {
      public:
        TestBatchScope(Trainer& trainer, const std::vector<std::size_t>& positions) : trainer_(trainer) {
            trainer.test_positions_ = positions;
        }
        ~TestBatchScope() {
            trainer_.test_positions_.reset();
            trainer_.test_outputs_.reset();
        }
        TestBatchScope(const TestBatchScope&) = delete;
        TestBatchScope& operator=(const TestBatchScope&) = delete;

      private:
        Trainer& trainer_;
    };

    /// Returns the positions of the samples of the current batch of an evaluation.
    [[nodiscard]] const std::vector<std::size_t>& test_positions(const char* caller) const {
        if (!test_positions_)
            throw ArgumentError(
                detail::text("Trainer: ", caller, " can only be called in Callback::test_batch()"));
        return *test_positions_;
    }

    ProcessGroup& group_;
    TrainerOptions options_;
    Model& model_;
    detail::ParameterSelection selection_;
    std::shared_ptr<DistributedDataParallel> ddp_;
    std::optional<ReproducibleDataParallel> reproducible_;
    std::unique_ptr<Sharded> sharded_;  // one of ddp_, reproducible_ and sharded_ is set
    Computation computation_;
    bool reads_averages_ = false;  // a callback does
    bool has_buffers_ = false;
    bool is_synchronized_ = false;  // whether batch norms wait for ranks without samples
    std::vector<Totals> training_;  // by shard of this rank
    std::vector<Totals> evaluation_;
    std::vector<std::string> frozen_;  // names of parameters
    std::vector<std::unique_ptr<Callback>> callbacks_;
    /// The epoch, or the part of it that this process trains.
    struct Epoch {
        std::size_t interval = 1;  // between summaries, in steps
        double samples_before = 0;
        std::chrono::steady_clock::time_point begin = {};
    };
    Epoch epoch_;
    Stage stage_ = Stage::begin;
    bool is_told_ = true;                        // whether callbacks have been called after the last step
    bool is_epoch_done_ = false;                 // in epoch_end
    SamplerState sampler_state_;                 // after the last step
    std::optional<SamplerState> continued_;      // where the next epoch begins, if not at its first sample
    std::array<double, 3> continued_sums_ = {};  // of the samples before that
    std::vector<double> own_sums_, all_sums_;    // workspace of sums()
    std::optional<detail::NonFiniteLoss> non_finite_;
    std::string dataset_fingerprint_;
    Progress progress_{*this};
    std::string received_progress_;          // from another rank of an elastic job
    bool has_joined_ = false;                // whether this rank has the frozen values of its job
    std::unique_ptr<ElasticState> elastic_;  // in an elastic job
    std::optional<std::vector<std::size_t>> test_positions_;  // in test_batch
    std::optional<BatchOutputs> test_outputs_;                // in test_batch, if a callback has asked
};

}  // namespace DPTK_NAMESPACE
