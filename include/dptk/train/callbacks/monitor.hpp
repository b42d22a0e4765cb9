/// Monitor, the result of evaluations by which callbacks decide what is better.
#pragma once

#include <cmath>
#include <cstdint>
#include <optional>

#include "dptk/core/config.hpp"
#include "dptk/train/epoch_result.hpp"

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

    [[nodiscard]] const std::optional<double>& value() const noexcept { return best_; }

    void set_value(double value) noexcept { best_ = value; }

  private:
    Monitor monitor_;
    std::optional<double> best_;  // the larger, the better
};

}  // namespace detail

}  // namespace DPTK_NAMESPACE
