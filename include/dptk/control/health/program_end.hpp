/// What happens when a rank exits earlier than others: its exit blocks until the other ranks have closed
/// their groups, for at most the timeout. The other ranks may still receive from this rank's connections, or
/// need the store that this rank serves. Without the wait, they would report this rank as lost, or would not
/// learn why the job has failed.
#pragma once

#include <algorithm>
#include <chrono>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "dptk/control/process/deadline.hpp"
#include "dptk/control/process/fork_guard.hpp"
#include "dptk/control/store/detail/served_store.hpp"
#include "dptk/control/store/store.hpp"
#include "dptk/core/config.hpp"
#include "dptk/core/log.hpp"

namespace DPTK_NAMESPACE::detail {

class DPTK_EXPORT ProgramEnd {
  public:
    /// The result of wait().
    struct Outcome {
        /// Why a job failed after this rank had left it, what was not complete at a timeout, or, on rank 0,
        /// which calls of the ranks have differed. Empty if none of this has happened.
        std::string failure;
        /// Whether all waits ended before their timeouts, and all ranks have made the same calls.
        bool well = true;
    };

    [[nodiscard]] static ProgramEnd& get() {
        static_cast<void>(StoreServers::get());  // constructed earlier, so it is destroyed later
        static ProgramEnd& end = *new ProgramEnd;
        static const AtProgramEnd at_program_end{end};
        return end;
    }

    ProgramEnd(const ProgramEnd&) = delete;
    ProgramEnd& operator=(const ProgramEnd&) = delete;

    /// Registers a job of `size` ranks, in which this process is `rank`. `store` holds the state of the job.
    void add_job(std::shared_ptr<Store> store, int rank, int size, std::chrono::milliseconds timeout);

    /// Registers a shutdown: wait() waits until the returned object has been destroyed, for at most
    /// `timeout`. Whatever must not outlive the program's end is destroyed before the object.
    [[nodiscard]] std::shared_ptr<void> begin_shutdown(std::chrono::milliseconds timeout);

    /// Blocks until all registered shutdowns are complete, and until each job has failed or all its ranks
    /// have left it, for at most the timeout of each shutdown and job. Does not wait for a job that this rank
    /// has not left, except in await_readers(). Skips what was registered before this process was forked.
    /// Called at program exit.
    Outcome wait() noexcept;

    /// Returns the ranks whose wait() has not ended, according to the stores of the jobs, for a message:
    /// "rank 3", or "ranks 1, 3". Names rank 0 if a store does not reply. Returns an empty string if there
    /// are none, and before wait().
    [[nodiscard]] std::string not_ended() noexcept;

    /// On rank 0 of a failed job, blocks until the other ranks have read the cause, for at most 1 s. wait()
    /// does this as well; a process that ends without wait() must call await_readers().
    void await_readers() noexcept;

  private:
    struct Job {
        std::shared_ptr<Store> store;
        int rank;
        int size;
        std::chrono::milliseconds timeout;
        ForkGuard fork_guard = {};
    };

    struct Shutdown {
        std::weak_ptr<void> owner;
        std::chrono::milliseconds timeout;
        ForkGuard fork_guard = {};
    };

    struct AtProgramEnd {
        ProgramEnd& end;
        ~AtProgramEnd();
    };

    /// How long rank 0 of a failed job waits for the other ranks to read the cause.
    static constexpr std::chrono::seconds reader_timeout{1};
    /// How long the exit waits before it logs a warning.
    static constexpr std::chrono::seconds warning_delay{60};

    ProgramEnd() = default;

    /// Blocks until the condition is true, for at most `timeout`. Returns whether it became true.
    template <class Condition>
    static bool wait_until(std::chrono::milliseconds timeout, Condition&& condition) {
        const Deadline deadline(timeout);
        const Deadline warning(warning_delay);
        bool warned = false;
        std::chrono::milliseconds pause(1);
        while (!condition()) {
            if (deadline.passed()) return false;
            if (!warned && warning.passed()) {
                log(LogLevel::warning, -1,
                    "the program has ended; waiting for other ranks to close their process groups");
                warned = true;
            }
            AwakeClock::sleep_for(pause);
            pause = std::min(pause * 2, std::chrono::milliseconds(100));
        }
        return true;
    }

    /// Returns whether the exit can stop waiting for the job. If the job has failed, sets `failure` to the
    /// cause. `next` is the first rank that is not known to have left; the function updates it.
    static bool is_over(const Job& job, int& next, std::string& failure);

    static void await_readers(const Job& job);

    /// Returns an error if two ranks of a job that all ranks have left have not made the same calls.
    [[nodiscard]] static std::string differing_calls_of(const Job& job);

    /// Returns the key that a rank sets at the end of wait().
    [[nodiscard]] static std::string exit_key(int rank);

    std::mutex mutex_;
    std::vector<Job> jobs_;
    std::vector<Job> ended_jobs_;  // the jobs for which wait() has waited
    std::vector<Shutdown> shutdowns_;
};

}  // namespace DPTK_NAMESPACE::detail

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/control/health/program_end.ipp"
#endif
