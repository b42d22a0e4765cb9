/// What the end of the program waits for: connections over which other ranks may still receive, and ranks
/// that need the store which this process serves. They would take its early end for the loss of this rank, or
/// never learn why the job has failed.
#pragma once

#include <algorithm>
#include <chrono>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "dptk/control/process/deadline.hpp"
#include "dptk/control/store/detail/served_store.hpp"
#include "dptk/control/store/store.hpp"
#include "dptk/core/config.hpp"
#include "dptk/core/log.hpp"

namespace DPTK_NAMESPACE::detail {

class DPTK_EXPORT ProgramEnd {
  public:
    [[nodiscard]] static ProgramEnd& get() {
        static_cast<void>(StoreServers::get());  // closes later
        static ProgramEnd& end = *new ProgramEnd;
        static const AtProgramEnd at_program_end{end};
        return end;
    }

    ProgramEnd(const ProgramEnd&) = delete;
    ProgramEnd& operator=(const ProgramEnd&) = delete;

    /// A job of `size` ranks, this process among them, whose state is in the store.
    void add_job(std::shared_ptr<Store> store, int rank, int size, std::chrono::milliseconds timeout);

    /// Something that is about to end by itself: is waited for while others own it, for at most `timeout`.
    void add_shutdown(const std::shared_ptr<void>& farewell, std::chrono::milliseconds timeout);

    /// Blocks until all farewells have been said, and each job has failed or all its ranks have left it; for
    /// at most their timeouts. Does not wait for a job that this rank has not left itself, unless it has
    /// failed: rank 0 gives the others a moment to learn why. The program's end calls it. Returns why a job
    /// has failed after this rank had left it; empty where none has.
    std::string wait() noexcept;

    /// Of a job that has failed, rank 0 gives the others a moment to learn why: blocks until they have, for
    /// at most a second. For a process that ends in a hurry; wait() does it, too.
    void await_readers() noexcept;

  private:
    struct Job {
        std::shared_ptr<Store> store;
        int rank;
        int size;
        std::chrono::milliseconds timeout;
    };

    struct Farewell {
        std::weak_ptr<void> owner;
        std::chrono::milliseconds timeout;
    };

    struct AtProgramEnd {
        ProgramEnd& end;
        ~AtProgramEnd();
    };

    /// How long a failed job may keep rank 0.
    static constexpr std::chrono::seconds moment{1};
    /// How long the program's end waits without a word.
    static constexpr std::chrono::seconds patience{60};

    ProgramEnd() = default;

    template <class Condition>
    static void wait_until(std::chrono::milliseconds timeout, Condition&& condition) {
        const Deadline deadline(timeout);
        const Deadline silence(patience);
        bool warned = false;
        std::chrono::milliseconds pause(1);
        while (!condition() && !deadline.passed()) {
            if (!warned && silence.passed()) {
                log(LogLevel::warning, -1,
                    "a program has ended, and waits for other ranks to close their process groups");
                warned = true;
            }
            std::this_thread::sleep_for(pause);
            pause = std::min(pause * 2, std::chrono::milliseconds(100));
        }
    }

    /// `next` is the first rank that is not known to have left.
    static bool is_over(const Job& job, int& next, std::string& failure);

    static void await_readers(const Job& job);

    std::mutex mutex_;
    std::vector<Job> jobs_;
    std::vector<Farewell> shutdowns_;
};

}  // namespace DPTK_NAMESPACE::detail

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/control/health/program_end.ipp"
#endif
