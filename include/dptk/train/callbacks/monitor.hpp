/// Monitor, the result of evaluations by which callbacks decide what is better.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "dptk/comm/agreement.hpp"
#include "dptk/core/config.hpp"
#include "dptk/core/detail/text.hpp"
#include "dptk/core/error.hpp"
#include "dptk/train/callback.hpp"
#include "dptk/train/epoch_result.hpp"
#include "dptk/train/training_state.hpp"

namespace DPTK_NAMESPACE {

/// A result of an evaluation.
enum class Monitor : std::uint8_t {
    automatic,  ///< The accuracy if the model reports it, otherwise the loss.
    accuracy,   ///< The larger, the better.
    loss        ///< The smaller, the better.
};

namespace detail {

/// The best result so far.
class BestResult {
  public:
    explicit BestResult(Monitor monitor) : monitor_(monitor), watched_(monitor) {}

    /// Throws ArgumentError on all ranks if the last evaluation does not have the result that `who` watches.
    void require_reported(TrainingRun& run, const char* who) const {
        const EpochResult& result = run.status().test;
        if (result.samples == 0)
            throw_agreed(run.group(), ArgumentError(text(who,
                                                         ": expected an evaluation of at least one sample, "
                                                         "the test dataset has none")));
        if (monitor_ == Monitor::accuracy && std::isnan(result.accuracy))
            throw_agreed(run.group(),
                         ArgumentError(text(who,
                                            ": the model reports no accuracy: use Monitor::loss, or set "
                                            "nn::LossResult::correct in the model's forward()")));
    }

    /// Returns whether the result is better than all before by more than `least`.
    bool update(const EpochResult& result, double least = 0) {
        if (result.samples == 0) return false;
        Monitor watched = monitor_;
        if (watched == Monitor::automatic)
            watched = std::isnan(result.accuracy) ? Monitor::loss : Monitor::accuracy;
        if (watched != std::exchange(watched_, watched)) best_.reset();
        const double value = watched_ == Monitor::accuracy ? result.accuracy : -result.loss;
        if (std::isnan(value) || (best_ && value <= *best_ + least)) return false;
        best_ = value;
        return true;
    }

    /// Adds the best result, if there is one, to the state of a run, under a name.
    void save(TrainingState& state, const std::string& name) const {
        state.values[name] = monitor_name();
        if (best_) state.training.push_back(StateTensor::of<double>(name, {1}, std::span(&*best_, 1)));
    }

    /// Restores the best result, if there is one. Returns whether the state is one of this monitor.
    bool restore(const TrainingState& state, const std::string& name) {
        *this = BestResult(monitor_);
        const StateTensor* const best = TrainingState::find(state.training, name);
        const auto monitor = state.values.find(name);
        const bool is_named = monitor != state.values.end();  // older checkpoints have no name
        if (!is_named && best == nullptr) return false;
        const Monitor saved = is_named && monitor->second == "loss" ? Monitor::loss : Monitor::accuracy;
        if (monitor_ == Monitor::automatic) watched_ = saved;
        if (is_named && monitor->second != monitor_name()) return false;
        if (best != nullptr) best_ = best->values<double>().at(0);
        return true;
    }

    [[nodiscard]] const char* monitor_name() const noexcept {
        constexpr const char* names[] = {"automatic", "accuracy", "loss"};
        return names[static_cast<std::size_t>(watched_)];
    }

  private:
    Monitor monitor_;
    Monitor watched_;             // automatic before the first result
    std::optional<double> best_;  // the larger, the better
};

}  // namespace detail

}  // namespace DPTK_NAMESPACE
