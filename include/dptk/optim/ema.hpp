/// EMA, the exponential moving average of a model's values.
#pragma once

#include <concepts>
#include <cstddef>
#include <span>
#include <utility>
#include <vector>

#include "dptk/core/config.hpp"
#include "dptk/core/detail/text.hpp"
#include "dptk/core/error.hpp"
#include "dptk/core/parameter_ref.hpp"

namespace DPTK_NAMESPACE {

/// Options of EMA.
struct EMAOptions {
    double decay = 0.999;  ///< average = decay · average + (1 - decay) · value; in [0, 1].
};

/// Averages of values of type T in host memory, as torch.optim.swa_utils.get_ema_multi_avg_fn computes them:
/// the values at the first update, then average += (1 - decay) · (value - average). Averages are equal on all
/// ranks if the values are. Buffers are not averaged. No call is collective.
template <std::floating_point T>
class EMA {
  public:
    /// Throws ArgumentError if the decay is not in [0, 1].
    explicit EMA(EMAOptions options = {}) : options_(options) {
        if (!(options.decay >= 0 && options.decay <= 1))
            throw ArgumentError(detail::text("EMA: expected a decay in [0, 1], found ", options.decay));
    }

    /// Adds the current values, such as those of ddp.parameters() after a step. Throws ArgumentError for
    /// values of another type or in device memory, or if their number changes.
    void update(std::span<const ParameterRef> parameters) {
        const bool is_first = averages_.empty();
        if (is_first) averages_.resize(parameters.size());
        check_count(parameters);
        const T rest = static_cast<T>(1 - options_.decay);
        for (std::size_t i = 0; i < parameters.size(); ++i) {
            const std::span<const T> values = parameters[i].values<T>();
            std::vector<T>& average = averages_[i];
            if (is_first) average.assign(values.begin(), values.end());
            check_size(parameters[i], average);
            for (std::size_t e = 0; e < values.size(); ++e) average[e] += rest * (values[e] - average[e]);
        }
    }

    /// Exchanges the values with the averages: once before an evaluation with the averages, and once after
    /// it. Between the two calls, call neither update() nor state(). Throws ArgumentError before the first
    /// update, and as update() does.
    void exchange(std::span<const ParameterRef> parameters) {
        check_count(parameters);
        for (std::size_t i = 0; i < parameters.size(); ++i) check_size(parameters[i], averages_[i]);
        for (std::size_t i = 0; i < parameters.size(); ++i) {
            const std::span<T> values = parameters[i].values<T>();
            for (std::size_t e = 0; e < values.size(); ++e) std::swap(values[e], averages_[i][e]);
        }
    }

    /// Returns the averages of each parameter, for checkpoints. Empty before the first update.
    [[nodiscard]] const std::vector<std::vector<T>>& state() const noexcept { return averages_; }

    /// Continues from averages that state() returned.
    void set_state(std::vector<std::vector<T>> averages) { averages_ = std::move(averages); }

  private:
    void check_count(std::span<const ParameterRef> parameters) const {
        if (parameters.size() != averages_.size())
            throw ArgumentError(detail::text("EMA: expected ", averages_.size(),
                                             " parameters, as in the first update, found ",
                                             parameters.size()));
    }

    void check_size(const ParameterRef& parameter, const std::vector<T>& average) const {
        if (parameter.count != average.size())
            throw ArgumentError(detail::text("EMA: parameter ", parameter.name, ": expected ", average.size(),
                                             " elements, as in the first update, found ", parameter.count));
    }

    EMAOptions options_;
    std::vector<std::vector<T>> averages_;
};

}  // namespace DPTK_NAMESPACE
