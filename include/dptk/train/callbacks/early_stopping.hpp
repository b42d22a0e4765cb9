/// EarlyStopping, a callback that ends a run that does not get better.
#pragma once

#include "dptk/core/config.hpp"
#include "dptk/core/detail/text.hpp"
#include "dptk/train/callback.hpp"
#include "dptk/train/callbacks/monitor.hpp"

namespace DPTK_NAMESPACE {

/// Options of EarlyStopping.
struct EarlyStoppingOptions {
    Monitor monitor = Monitor::automatic;  ///< Which result must get better.
    int patience = 5;      ///< The number of epochs without a better one after which the run ends.
    double min_delta = 0;  ///< By how much a better result must differ.
};

/// Ends the run after `patience` epochs in a row without a better evaluation. Throws ArgumentError on all
/// ranks after an epoch whose evaluation does not have the result of the monitor.
class EarlyStopping : public Callback {
  public:
    /// Makes the callback.
    explicit EarlyStopping(EarlyStoppingOptions options = {}) : options_(options), best_(options.monitor) {}

    void train_begin(TrainingRun& run) override {
        if (run.status().step == 0) begin_anew();
    }

    void epoch_end(TrainingRun& run) override {
        best_.require_reported(run, "EarlyStopping");
        worse_ = best_.update(run.status().test, options_.min_delta) ? 0 : worse_ + 1;
        check(run);
    }

    void save(TrainingRun& /*run*/, TrainingState& state) override {
        state.values["early_stopping.worse"] = detail::text(worse_);
        best_.save(state, "early_stopping.best");
    }

    void restore(TrainingRun& run, const TrainingState& state) override {
        begin_anew();
        if (!best_.restore(state, "early_stopping.best")) return;
        worse_ = static_cast<int>(state.number("early_stopping.worse"));
        check(run);
    }

  private:
    void begin_anew() {
        best_ = detail::BestResult(options_.monitor);
        worse_ = 0;
    }

    void check(TrainingRun& run) const {
        if (worse_ >= options_.patience)
            run.stop(detail::text("no better ", best_.monitor_name(), " in ", worse_, " epochs"));
    }

    EarlyStoppingOptions options_;
    detail::BestResult best_;
    int worse_ = 0;  // the number of epochs since the best one
};

}  // namespace DPTK_NAMESPACE
