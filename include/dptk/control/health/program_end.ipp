#pragma once

#include "dptk/control/health/program_end.hpp"

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <utility>

#include "dptk/control/health/call_comparison.hpp"
#include "dptk/control/health/control_plane.hpp"
#include "dptk/core/detail/algorithms.hpp"
#include "dptk/core/error.hpp"

namespace DPTK_NAMESPACE::detail {

DPTK_INLINE void ProgramEnd::add_job(std::shared_ptr<Store> store, int rank, int size,
                                     std::chrono::milliseconds timeout) {
    const std::lock_guard lock(mutex_);
    jobs_.push_back({std::move(store), rank, size, timeout});
}

DPTK_INLINE std::shared_ptr<void> ProgramEnd::begin_shutdown(std::chrono::milliseconds timeout) {
    auto owner = std::make_shared<char>();
    const std::lock_guard lock(mutex_);
    detail::erase_if(shutdowns_, [](const Shutdown& other) { return other.owner.expired(); });
    shutdowns_.push_back({owner, timeout});
    return owner;
}

DPTK_INLINE ProgramEnd::Outcome ProgramEnd::wait() noexcept {
    Outcome outcome;
    const auto give_up = [&](std::string failure) { outcome = {std::move(failure), false}; };
    try {
        std::vector<Job> jobs;
        std::vector<Shutdown> shutdowns;
        {
            const std::lock_guard lock(mutex_);
            jobs.swap(jobs_);
            shutdowns.swap(shutdowns_);
        }
        const auto is_of_parent = [](const auto& entry) { return entry.fork_guard.is_in_child(); };
        for (Job& job : jobs) {  // its connections are in use by the parent, and must not be closed
            if (is_of_parent(job)) keep_for_ever(job.store);
        }
        detail::erase_if(jobs, is_of_parent);
        detail::erase_if(shutdowns, is_of_parent);
        const AwakeClock::time_point begin = AwakeClock::now();
        const auto left = [&](std::chrono::milliseconds timeout) {
            const auto waited = AwakeClock::now() - begin;
            return timeout - std::chrono::duration_cast<std::chrono::milliseconds>(waited);
        };
        for (const Shutdown& shutdown : shutdowns) {
            if (!wait_until(left(shutdown.timeout), [&] { return shutdown.owner.expired(); }))
                give_up(text("other ranks have not closed their process groups within ",
                             duration_text(shutdown.timeout), " of this rank's exit"));
        }
        for (const Job& job : jobs) {
            int next = 0;
            std::string failure;
            const bool in_time = wait_until(left(job.timeout), [&] { return is_over(job, next, failure); });
            if (outcome.failure.empty()) outcome.failure = failure;
            if (!in_time)
                give_up(text("rank ", next, " has not closed its process group within ",
                             duration_text(job.timeout), " of this rank's exit"));
            const bool all_left = in_time && failure.empty();
            const std::string calls = job.rank == 0 && all_left ? differing_calls_of(job) : std::string();
            if (!calls.empty()) give_up(calls);
            await_readers(job);
        }
        {
            const std::lock_guard lock(mutex_);
            ended_jobs_ = jobs;
        }
        for (const Job& job : jobs) job.store->set(exit_key(job.rank), "");
    } catch (const PeerLostError&) {
        // Rank 0 has ended, and its store with it, or is stopped.
    } catch (const std::exception& error) {
        log(LogLevel::error, -1, text("while waiting for other ranks: ", error.what()));
    }
    return outcome;
}

DPTK_INLINE std::string ProgramEnd::not_ended() noexcept {
    std::string ranks;
    int count = 0;
    try {
        const std::lock_guard lock(mutex_);
        for (const Job& job : ended_jobs_) {
            for (int rank = 0; rank < job.size; ++rank) {
                if (job.store->find(exit_key(rank))) continue;
                ranks += text(ranks.empty() ? "" : ", ", rank);
                ++count;
            }
        }
    } catch (const std::exception&) {
        return "rank 0, whose store does not reply,";
    }
    return count == 0 ? std::string() : (count == 1 ? "rank " : "ranks ") + ranks;
}

DPTK_INLINE std::string ProgramEnd::exit_key(int rank) {
    return text("exit/", rank);
}

DPTK_INLINE void ProgramEnd::await_readers() noexcept {
    try {
        std::vector<Job> jobs;
        {
            const std::lock_guard lock(mutex_);
            jobs = jobs_;
        }
        for (const Job& job : jobs) await_readers(job);
    } catch (const std::exception& error) {
        log(LogLevel::error, -1, text("while reporting the cause to other ranks: ", error.what()));
    }
}

DPTK_INLINE ProgramEnd::AtProgramEnd::~AtProgramEnd() {
    const Outcome outcome = end.wait();
    if (outcome.well) return;
    log(LogLevel::error, -1, "ends the process: " + outcome.failure);
    std::fflush(nullptr);
    std::_Exit(EXIT_FAILURE);  // exit() is already running, and must not be called again
}

DPTK_INLINE bool ProgramEnd::is_over(const Job& job, int& next, std::string& failure) {
    const auto has_left = [&](int rank) { return job.store->find(ControlPlane::left_key(rank)).has_value(); };
    try {
        if (!has_left(job.rank)) return true;
        while (next < job.size && has_left(next)) ++next;
        if (next == job.size) return true;
        failure = parse_cause(job.store->find(ControlPlane::abort_key).value_or("")).text;
        return !failure.empty();
    } catch (const PeerLostError&) {
        return true;  // rank 0 has ended, so all ranks have left
    }
}

DPTK_INLINE std::string ProgramEnd::differing_calls_of(const Job& job) {
    std::vector<RankStatus> statuses;
    std::vector<const RankStatus*> each;
    std::vector<std::string> labels;
    try {
        for (int rank = 0; rank < job.size; ++rank) {
            const std::string status = job.store->find(ControlPlane::left_key(rank)).value_or("");
            statuses.push_back(parse_rank_status(status).value_or(RankStatus{}));
            labels.push_back(text("rank ", rank));
        }
    } catch (const PeerLostError&) {
        return {};  // another process serves the store, and has ended
    }
    for (const RankStatus& status : statuses) each.push_back(&status);
    const std::optional<CallDifference> found = find_difference(each);
    if (!found) return {};
    const auto calls_of = [&](std::size_t rank) { return each[rank]->channel(found->channel)->calls; };
    return describe(*found, differing_calls(*found, calls_of(found->one), calls_of(found->other)), labels);
}

DPTK_INLINE void ProgramEnd::await_readers(const Job& job) {
    const auto knows = [&](int rank) {
        return job.store->find(ControlPlane::ended_key(rank)) ||
               job.store->find(ControlPlane::left_key(rank));
    };
    try {
        if (job.rank != 0 || !job.store->find(ControlPlane::abort_key)) return;
        wait_until(reader_timeout, [&, next = 1]() mutable {
            while (next < job.size && knows(next)) ++next;
            return next == job.size;
        });
    } catch (const PeerLostError&) {
        // The store no longer exists, so no rank can read the cause.
    }
}

}  // namespace DPTK_NAMESPACE::detail
