// One attempt at the job: starts the ranks, passes on what they print, and returns when all have ended.
#pragma once

#include <dptk/control/health/first_failure.hpp>
#include <dptk/control/process/stop_schedule.hpp>

#include <poll.h>

#include <array>
#include <chrono>
#include <csignal>
#include <memory>
#include <optional>
#include <vector>

#include "console.hpp"
#include "guard.hpp"
#include "job.hpp"
#include "rank.hpp"
#include "signals.hpp"

namespace run {

struct AttemptResult {
    std::vector<dptk::detail::RankEnd> ends;
    std::vector<dptk::detail::StoppedRank> stopped;
    std::vector<Tail> tails;  // by local rank
    bool failed = false;      // a rank failed before a signal asked it to end
    int signal = 0;           // that asked the job to end; SIGPIPE where nobody reads what it prints
};

class Attempt {
  public:
    Attempt(const Job& job, const Meeting& meeting, const Signals& signals, Guard& guard, Console& console);
    Attempt(const Attempt&) = delete;
    Attempt& operator=(const Attempt&) = delete;

    /// Throws dptk::Error where a rank cannot be started; those that run are ended then.
    [[nodiscard]] AttemptResult run();

  private:
    using Clock = std::chrono::steady_clock;
    using Time = Clock::time_point;

    void start_ranks();
    void supervise();
    void take_signals(Time now);
    void take_signal(int signal, Time now);
    void watch_console(Time now);
    void reap(Time now);
    void note_change(Rank& rank, int wait_status, Time now);
    void act(dptk::detail::StopSchedule::Action action);
    void end_orphans(int signal);
    void look_after_orphans(Time now);
    void pass_on_output(Time now);
    void read_rest();
    void wait_for_events(Time now);
    [[nodiscard]] int timeout(Time now) const;
    [[nodiscard]] bool all_ended() const;
    [[nodiscard]] bool all_read();
    [[nodiscard]] std::vector<pid_t> known_processes() const;

    const Job& job_;
    const Meeting& meeting_;
    const Signals& signals_;
    Guard& guard_;
    Console& console_;

    Time start_ = Clock::now();
    std::vector<std::unique_ptr<Rank>> ranks_;
    std::array<ConsoleTurn, 2> turns_;
    dptk::detail::StopSchedule schedule_;
    int stop_signal_ = SIGTERM;  // what ranks are asked to end with
    std::optional<Time> gone_;   // since when no process of the job is left
    AttemptResult result_;
};

}  // namespace run
