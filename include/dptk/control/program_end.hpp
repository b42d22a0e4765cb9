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
#include <utility>
#include <vector>

#include "dptk/control/control_plane.hpp"
#include "dptk/control/deadline.hpp"
#include "dptk/control/served_store.hpp"
#include "dptk/control/store.hpp"
#include "dptk/core/error.hpp"
#include "dptk/core/export.hpp"
#include "dptk/core/log.hpp"

namespace dptk {

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
    void add_job(std::shared_ptr<Store> store, int rank, int size, std::chrono::milliseconds timeout) {
        const std::lock_guard lock(mutex_);
        jobs_.push_back({std::move(store), rank, size, timeout});
    }

    /// Something that is about to end by itself: is waited for while others own it, for at most `timeout`.
    void add_farewell(const std::shared_ptr<void>& farewell, std::chrono::milliseconds timeout) {
        const std::lock_guard lock(mutex_);
        std::erase_if(farewells_, [](const Farewell& other) { return other.owner.expired(); });
        farewells_.push_back({farewell, timeout});
    }

    /// Blocks until all farewells have been said, and each job has failed or all its ranks have left it; for
    /// at most their timeouts. Does not wait for a job that this rank has not left itself, unless it has
    /// failed: rank 0 gives the others a moment to learn why. The program's end calls it. Returns why a job
    /// has failed after this rank had left it; empty where none has.
    std::string wait() noexcept {
        std::string failure;
        try {
            std::vector<Job> jobs;
            std::vector<Farewell> farewells;
            {
                const std::lock_guard lock(mutex_);
                jobs.swap(jobs_);
                farewells.swap(farewells_);
            }
            for (const Farewell& farewell : farewells) {
                wait_until(farewell.timeout, [&] { return farewell.owner.expired(); });
            }
            for (const Job& job : jobs) {
                wait_until(job.timeout, [&, next = 0]() mutable { return is_over(job, next, failure); });
                await_readers(job);
            }
        } catch (const std::exception& error) {
            log(LogLevel::error, -1, detail::text("while waiting for other ranks: ", error.what()));
        }
        return failure;
    }

    /// Of a job that has failed, rank 0 gives the others a moment to learn why: blocks until they have, for
    /// at most a second. For a process that ends in a hurry; wait() does it, too.
    void await_readers() noexcept {
        try {
            std::vector<Job> jobs;
            {
                const std::lock_guard lock(mutex_);
                jobs = jobs_;
            }
            for (const Job& job : jobs) await_readers(job);
        } catch (const std::exception& error) {
            log(LogLevel::error, -1, detail::text("while telling other ranks: ", error.what()));
        }
    }

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
        ~AtProgramEnd() { static_cast<void>(end.wait()); }
    };

    /// How long a failed job may keep rank 0.
    static constexpr std::chrono::seconds moment{1};
    /// How long the program's end waits without a word.
    static constexpr std::chrono::seconds patience{60};

    ProgramEnd() = default;

    template <class Condition>
    static void wait_until(std::chrono::milliseconds timeout, Condition&& condition) {
        const detail::Deadline deadline(timeout);
        const detail::Deadline silence(patience);
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
    static bool is_over(const Job& job, int& next, std::string& failure) {
        const auto has_left = [&](int rank) {
            return job.store->find(ControlPlane::left_key(rank)).has_value();
        };
        try {
            if (!has_left(job.rank)) return true;
            while (next < job.size && has_left(next)) ++next;
            if (next == job.size) return true;
            failure = job.store->find(ControlPlane::abort_key).value_or("");
            return !failure.empty();
        } catch (const PeerLostError&) {
            return true;  // rank 0 has ended: all have left
        }
    }

    static void await_readers(const Job& job) {
        const auto knows = [&](int rank) {
            return job.store->find(ControlPlane::ended_key(rank)) ||
                   job.store->find(ControlPlane::left_key(rank));
        };
        try {
            if (job.rank != 0 || !job.store->find(ControlPlane::abort_key)) return;
            wait_until(moment, [&, next = 1]() mutable {
                while (next < job.size && knows(next)) ++next;
                return next == job.size;
            });
        } catch (const PeerLostError&) {
            // The store has ended.
        }
    }

    std::mutex mutex_;
    std::vector<Job> jobs_;
    std::vector<Farewell> farewells_;
};

}  // namespace dptk
