// Attempt runs a job once (a restart is another attempt): it starts the ranks, forwards their output, and
// returns when all ranks have ended.
#pragma once

#include <dptk/control/health/first_failure.hpp>
#include <dptk/control/process/stop_schedule.hpp>

#include <poll.h>

#include <array>
#include <chrono>
#include <csignal>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "console.hpp"
#include "elastic_members.hpp"
#include "guard.hpp"
#include "job.hpp"
#include "rank.hpp"
#include "signals.hpp"

namespace run {

struct AttemptResult {
    std::vector<dptk::detail::RankEnd> ends;
    std::vector<dptk::detail::StoppedRank> stopped;
    std::vector<Tail> tails;  // by local rank
    bool failed = false;      // a rank failed before the ranks were asked to end
    int signal = 0;           // the signal that ended the job; SIGPIPE if the output's reader closed its pipe
};

class Attempt {
  public:
    Attempt(const Job& job, const Rendezvous& rendezvous, const Signals& signals, Guard& guard,
            Console& console, ElasticMembers* members);
    Attempt(const Attempt&) = delete;
    Attempt& operator=(const Attempt&) = delete;

    /// Starts the ranks, and returns when they have ended. If a rank cannot be started, kills the ranks that
    /// were started before, and throws dptk::Error.
    [[nodiscard]] AttemptResult run();

  private:
    using Clock = std::chrono::steady_clock;
    using Time = dptk::detail::StopSchedule::Time;  // without the times in which dptk-run was stopped itself

    void start_ranks();
    [[nodiscard]] std::unique_ptr<Rank> start_rank(int local_rank);
    void supervise();
    void handle_signals(Time now);
    void handle_signal(int signal, Time now);
    void watch_console(Time now);
    void reap(Time now);
    void record_change(std::unique_ptr<Rank>& rank, int wait_status, Time now);
    void end_job_of_stopped_rank(Time now);
    void act(dptk::detail::StopSchedule::Action action);
    void report_killed(const std::vector<int>& ranks, const std::vector<pid_t>& orphans);
    std::vector<pid_t> end_orphans(int signal);
    void end_remaining_orphans(Time now);
    void forward_output();
    void read_rest();
    static void read_rest(Rank& rank);
    void replace_if_lost(std::unique_ptr<Rank>& rank, Time now);
    void wait_for_events(Time now);
    [[nodiscard]] std::optional<Time::duration> time_to_next_action(Time now) const;
    [[nodiscard]] bool all_ended() const;
    [[nodiscard]] bool all_read();
    [[nodiscard]] std::vector<pid_t> known_processes() const;

    const Job& job_;
    const Rendezvous& rendezvous_;
    const Signals& signals_;
    Guard& guard_;
    Console& console_;

    Clock::time_point start_ = Clock::now();
    ElasticMembers* members_;  // null if the job is not elastic
    std::vector<std::unique_ptr<Rank>> ranks_;
    int replacements_ = 0;
    std::optional<dptk::detail::RankEnd> last_loss_;  // the last rank without which the others continue
    std::array<LastWriter, 2> last_writers_;
    dptk::detail::StopSchedule schedule_;
    int stop_signal_ = SIGTERM;  // the signal that asks ranks to end
    std::string kill_reason_;    // why the ranks are killed before the shutdown timeout; may be empty
    std::optional<Time> all_gone_since_;  // the time since which no process of the job is left
    AttemptResult result_;
};

}  // namespace run
