/// Monitor, the result of evaluations by which callbacks decide what is better.
#pragma once

#include <cmath>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "dptk/core/config.hpp"
#include "dptk/train/epoch_result.hpp"
#include "dptk/train/training_state.hpp"

namespace DPTK_NAMESPACE {

/// A result of an evaluation.
enum class Monitor : std::uint8_t {
    accuracy,  ///< The larger, the better.
    loss       ///< The smaller, the better.
};

namespace detail {

/// The best result so far.
class BestResult {
  public:
    explicit BestResult(Monitor monitor) : monitor_(monitor) {}

    /// Returns whether the result is better than all before by more than `least`.
    bool update(const EpochResult& result, double least = 0) {
        const double value = monitor_ == Monitor::accuracy ? result.accuracy : -result.loss;
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
        const StateTensor* const best = TrainingState::find(state.training, name);
        const auto monitor = state.values.find(name);
        const bool is_named = monitor != state.values.end();  // older checkpoints have no name
        if (is_named ? monitor->second != monitor_name() : best == nullptr) return false;
        if (best != nullptr) best_ = best->values<double>().at(0);
        return true;
    }

    [[nodiscard]] const char* monitor_name() const noexcept {
        return monitor_ == Monitor::accuracy ? "accuracy" : "loss";
    }

  private:
    Monitor monitor_;
    std::optional<double> best_;  // the larger, the better
};

}  // namespace detail

}  // namespace DPTK_NAMESPACE
