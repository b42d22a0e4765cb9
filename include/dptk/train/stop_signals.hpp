/// StopSignals, which notes signals that ask a program to end, and StopOnSignal, a callback that then ends a
/// run on all ranks at the same step.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "dptk/core/config.hpp"
#include "dptk/train/callback.hpp"

namespace DPTK_NAMESPACE {

/// Handles SIGTERM, SIGINT and SIGUSR1 from construction to destruction. Once the program looks for signals,
/// by received(), received_by_any() or the first step with StopOnSignal, the first one is only noted, and
/// rank 0 writes a line to stderr. A second signal ends the program at once, as without a handler, and so
/// does one that arrives earlier, when there is nothing to be saved: construct the object before
/// init_process_group(). If a process has several objects, as with ranks that are threads, the first one sets
/// the handlers, and the last one sets those from before.
///
/// The handlers run on a stack of their own (sigaltstack()) if they interrupt a thread that has constructed
/// an object, unless the thread has one already.
class StopSignals {
  public:
    /// Sets the handlers.
    StopSignals();
    /// Sets the handlers from before.
    ~StopSignals();
    StopSignals(const StopSignals&) = delete;
    StopSignals& operator=(const StopSignals&) = delete;

    /// Sets the time from the first signal until the program ends at once, as by a second signal, if it has
    /// not ended by then; 0, the default, for no such limit. Uses alarm(), and lasts until the last object is
    /// destroyed. Whole seconds.
    static void set_grace_time(std::chrono::seconds time) noexcept;

    /// Returns the signal that this process has received, or 0.
    [[nodiscard]] static int received() noexcept;

    /// Returns the largest number of a signal that any rank has received, or 0. Collective.
    [[nodiscard]] static int received_by_any(ProcessGroup& group);

  private:
    friend class StopOnSignal;

    /// Makes signals to this process be noted from now on, because there is something to be saved. `rank` is
    /// that of the caller; rank 0 writes a line about the first signal.
    static void note_from_now_on(int rank) noexcept;
};

/// Returns the name of a signal, such as "SIGTERM".
[[nodiscard]] std::string signal_name(int signal);

/// Ends the run on all ranks after the same step or evaluation batch if any rank has received a signal, so
/// that a Checkpoint callback writes one checkpoint. Needs a StopSignals object, and calls all_reduce once in
/// each step. In an elastic job, the run ends if all ranks have received one; a rank that alone has received
/// one leaves the job by an Error, and the others continue.
class StopOnSignal : public Callback {
  public:
    void step(TrainingRun& run) override { StopSignals::note_from_now_on(run.group().rank()); }
    void batch_end(TrainingRun& run) override { check(run); }
    void test_batch(TrainingRun& run) override { check(run); }

  private:
    static void check(TrainingRun& run);
    static void check_elastic(TrainingRun& run);
    static void stop(TrainingRun& run, int signal);
};

}  // namespace DPTK_NAMESPACE

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/train/stop_signals.ipp"
#endif
