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

    /// Adds the best result to the state of a run, under a name.
    void save(TrainingState& state, const std::string& name) const {
        if (!best_) return;
        state.training.push_back(StateTensor::of<double>(name, {1}, std::span(&*best_, 1)));
        state.values[name] = monitor_name();
    }

    /// Restores the best result. Returns whether the state has one of this monitor.
    bool restore(const TrainingState& state, const std::string& name) {
        const StateTensor* best = TrainingState::find(state.training, name);
        const auto monitor = state.values.find(name);
        if (best == nullptr || (monitor != state.values.end() && monitor->second != monitor_name()))
            return false;
        best_ = best->values<double>().at(0);
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
