/// AwakeClock, a steady clock that stands still while this process is stopped (by SIGSTOP, a debugger, or a
/// scheduler that suspends jobs). Deadlines and heartbeats use it, so that a job that is suspended as a whole
/// continues afterwards.
#pragma once

#include <chrono>
#include <mutex>

#include "dptk/control/process/fork_guard.hpp"
#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE::detail {

/// Finds the times in which a process was stopped: the gaps between the looks of threads that wait, which
/// look often. The caller passes the time.
class PauseMeter {
  public:
    using Clock = std::chrono::steady_clock;

    /// A thread that waits looks at least this often.
    static constexpr std::chrono::milliseconds look_interval{100};
    /// If no thread that waits has looked for longer than this, the process was stopped.
    static constexpr std::chrono::milliseconds shortest_pause{500};

    /// Returns the time since the clock's epoch without the pauses.
    Clock::duration look(Clock::time_point now) noexcept;

    /// Records that a thread begins to wait, or ends.
    void begin_waiting(Clock::time_point now) noexcept;
    void end_waiting(Clock::time_point now) noexcept;

  private:
    Clock::time_point last_look_{};
    Clock::duration paused_{};
    int waiting_ = 0;
};

/// A clock as in <chrono>. Any thread may call it. A forked child must not compare its times with its
/// parent's.
class DPTK_EXPORT AwakeClock {
  public:
    using duration = PauseMeter::Clock::duration;
    using rep = duration::rep;
    using period = duration::period;
    using time_point = std::chrono::time_point<AwakeClock>;
    static constexpr bool is_steady = true;
    static constexpr std::chrono::milliseconds look_interval = PauseMeter::look_interval;

    [[nodiscard]] static time_point now() noexcept { return State::get().look(); }

    /// Exists while a thread waits. The thread must call now() once per look_interval meanwhile: a pause of
    /// the process is noticed if at least one of its threads waits.
    class Waiting {
      public:
        Waiting() noexcept { State::get().begin_waiting(); }
        ~Waiting() { State::get().end_waiting(); }
        Waiting(const Waiting&) = delete;
        Waiting& operator=(const Waiting&) = delete;
    };

    /// Sleeps for `time`, without pauses of the process.
    static void sleep_for(duration time);

  private:
    class State {
      public:
        [[nodiscard]] static State& get() {
            static OfThisProcess<State> state;
            return state.get();
        }

        time_point look() noexcept;
        void begin_waiting() noexcept;
        void end_waiting() noexcept;

      private:
        std::mutex mutex_;
        PauseMeter meter_;
    };
};

}  // namespace DPTK_NAMESPACE::detail

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/control/process/awake_clock.ipp"
#endif
