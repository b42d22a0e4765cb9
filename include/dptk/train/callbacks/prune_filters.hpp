/// PruneFilters, a callback that prunes the network of a training run and fine-tunes it with masks, and
/// SlimPenalty, a callback that trains a network for FilterScore::slim.
#pragma once

#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "dptk/comm/agreement.hpp"
#include "dptk/core/config.hpp"
#include "dptk/nn/graph.hpp"
#include "dptk/nn/network.hpp"
#include "dptk/prune/filter_masks.hpp"
#include "dptk/prune/pruning_plan.hpp"
#include "dptk/train/callback.hpp"
#include "dptk/train/training_state.hpp"

namespace DPTK_NAMESPACE {

namespace detail {

/// Throws ArgumentError if the options are invalid, or the graph has no channels that may be pruned.
void require_prunable(const nn::Graph& graph, nn::PruningOptions options);

/// Returns the options as a text that is equal if and only if they are.
[[nodiscard]] std::string options_text(const nn::PruningOptions& options);

/// Returns a line for each group, with the channels that remain.
[[nodiscard]] std::string kept_table(const nn::Graph& graph, const nn::PruningPlan& plan);

/// Adds which channels remain to the state of a run.
void save_plan(const nn::PruningPlan& plan, const nn::PruningOptions& options, TrainingState& state);

/// Returns the plan that save_plan() has added, or nothing without one. Throws ArgumentError if it was
/// made with other options, or for another graph.
[[nodiscard]] std::optional<nn::PruningPlan> restore_plan(const nn::Graph& graph,
                                                          const nn::PruningOptions& options,
                                                          const TrainingState& state);

}  // namespace detail

/// Prunes a network when an epoch begins: makes a plan from the values of the parameters, and then keeps the
/// pruned channels 0 after each step. Checkpoints contain the plan; add this callback before Checkpoint.
/// AverageWeights cannot be combined with it, since averages are not masked. Afterwards, plan() is for
/// nn::prune() and nn::copy_pruned_values().
template <class Backend>
class PruneFilters : public Callback {
  public:
    /// Prunes at the beginning of epoch `from_epoch`, counted from 0, or of a later one if the run continues
    /// there from a checkpoint that is not pruned. The network must be the trainer's, and outlive it. Not
    /// collective. Throws ArgumentError if an option is invalid, or no channels of the graph may be pruned.
    PruneFilters(nn::Network<Backend>& net, nn::PruningOptions options, int from_epoch = 0)
        : net_(&net), options_(std::move(options)), from_epoch_(from_epoch) {
        detail::require_prunable(net.graph(), options_);
    }

    /// Returns the plan, or null if the network is not pruned yet.
    [[nodiscard]] const nn::PruningPlan* plan() const noexcept { return masks_ ? &masks_->plan() : nullptr; }

    void train_begin(TrainingRun& run) override {
        if (run.status().step == 0) masks_.reset();
    }

    /// Throws MismatchError on all ranks if the plans of ranks differ, and Error on all ranks if a score is
    /// not finite.
    void epoch_begin(TrainingRun& run) override {
        if (masks_ || run.status().epoch < from_epoch_) return;
        nn::PruningPlan plan = on_all_or_none(run.group(), [&] { return nn::plan_pruning(*net_, options_); });
        detail::check_equal_tables(run.group(), "pruned channels", detail::kept_table(net_->graph(), plan));
        masks_.emplace(*net_, std::move(plan));
    }

    void step(TrainingRun& /*run*/) override {
        if (masks_) masks_->apply();
    }

    void save(TrainingRun& /*run*/, TrainingState& state) override {
        if (masks_) detail::save_plan(masks_->plan(), options_, state);
    }

    void restore(TrainingRun& /*run*/, const TrainingState& state) override {
        masks_.reset();
        if (auto plan = detail::restore_plan(net_->graph(), options_, state))
            masks_.emplace(*net_, std::move(*plan));
    }

  private:
    nn::Network<Backend>* net_;
    nn::PruningOptions options_;
    int from_epoch_;
    std::optional<nn::FilterMasks<Backend>> masks_;
};

/// Adds nn::add_slim_gradients() to each step, which moves the weights of unimportant channels in batch norms
/// to 0. For networks in host memory.
class SlimPenalty : public Callback {
  public:
    /// In the epochs before `until_epoch`, counted from 0. The graph must outlive the trainer. Throws
    /// ArgumentError if the factor is negative or not finite.
    explicit SlimPenalty(const nn::Graph& graph, double factor = 1e-4,
                         int until_epoch = std::numeric_limits<int>::max());

    DPTK_INLINE void gradients(TrainingRun& run) override;

  private:
    const nn::Graph* graph_;
    double factor_;
    int until_epoch_;
};

}  // namespace DPTK_NAMESPACE

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/train/callbacks/prune_filters.ipp"
#endif
