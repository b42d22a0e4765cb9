/// spawn(n, fn) runs fn in n ranks without a launcher: each rank is a fork of the calling process, on this
/// host. Like torch.multiprocessing.spawn, it is meant for tests, and for programs that start their own
/// ranks.
#pragma once

#include <chrono>
#include <cstdlib>
#include <exception>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "dptk/comm/init.hpp"
#include "dptk/control/health/failure_report.hpp"
#include "dptk/control/health/first_failure.hpp"
#include "dptk/control/health/program_end.hpp"
#include "dptk/control/launch/detail/rank_environment.hpp"
#include "dptk/control/net/reserved_port.hpp"
#include "dptk/control/process/stop_schedule.hpp"
#include "dptk/control/process/temporary_directory.hpp"
#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE {

namespace detail {

/// Flushes the standard streams. Otherwise every forked process would write their buffered output.
void flush_standard_streams();

/// Returns the number of threads of this process; 1 if /proc does not report it.
[[nodiscard]] int count_own_threads();

/// Runs `fn` in a spawned rank and returns the exit status of the rank. If `fn` throws, closes the group
/// before it reports the failure.
inline int run_spawned_rank(const std::function<void(ProcessGroup&)>& fn) noexcept {
    const auto failed = [](FailureKind kind, const char* what, std::optional<int> blamed = std::nullopt) {
        ProgramEnd::get().await_readers();
        const char* const path = std::getenv("DPTK_ERROR_FILE");
        const std::optional<FailureReport> earlier = read_failure_report(path);
        FailureReport report{kind, what};
        if (blamed) report.ranks.push_back(*blamed);
        if (!earlier || earlier->kind != FailureKind::consequence) write_failure_report(path, report);
        flush_standard_streams();
        return EXIT_FAILURE;
    };
    try {
        {
            ProcessGroup group = init_process_group();
            fn(group);
        }
        // Called here because the rank exits without running destructors of static objects, which would wait.
        const ProgramEnd::Outcome outcome = ProgramEnd::get().wait();
        if (!outcome.well) return failed(FailureKind::consequence, outcome.failure.c_str());
        flush_standard_streams();
        return EXIT_SUCCESS;
    } catch (const PeerLostError& error) {
        return failed(FailureKind::consequence, error.what(), error.peer());
    } catch (const Error& error) {
        if (error.agreed()) return failed(FailureKind::agreed, error.what(), error.rank());
        return failed(FailureKind::cause, error.what(), error.peer());
    } catch (const std::exception& error) {
        return failed(FailureKind::cause, error.what());
    } catch (...) {
        return failed(FailureKind::cause, "an exception that is not derived from std::exception");
    }
}

/// The forked ranks, as their parent manages them. The destructor kills the ranks that are still running.
class SpawnedRanks {
  public:
    /// The function that each rank runs. It receives the rank, must not throw, and returns the exit status.
    using Body = std::function<int(int rank)>;

    SpawnedRanks(int size, const Body& body);

    SpawnedRanks(const SpawnedRanks&) = delete;
    SpawnedRanks& operator=(const SpawnedRanks&) = delete;
    ~SpawnedRanks();

    /// Blocks until all ranks have ended, and returns the first failure, or nullopt if no rank has failed.
    /// After a failure, stops the ranks that are still running.
    [[nodiscard]] std::optional<FirstFailure> wait();

  private:
    using Clock = std::chrono::steady_clock;

    struct Running {
        int rank;
        pid_t process;
        int stop_signal;  // such as SIGSTOP; 0 unless the rank is stopped
    };

    void start(int rank, int size, const JobPlace& job, const Body& body);

    void poll_ranks(StopSchedule::Time now);

    bool record_end(const Running& rank, StopSchedule::Time now);

    void act(StopSchedule::Action action);

    void kill_all() noexcept;

    [[nodiscard]] std::string report_path(int rank) const;

    Clock::time_point start_;
    std::chrono::milliseconds shutdown_timeout_;
    StopSchedule schedule_{shutdown_timeout_};
    TemporaryDirectory files_;
    ReservedPort port_;
    std::vector<Running> running_;
    std::vector<RankEnd> ends_;
    std::vector<StoppedRank> stopped_;
};

}  // namespace detail

/// Runs fn(ProcessGroup&) in `size` ranks, each a fork of this process, and returns when all have ended. `fn`
/// receives the group that init_process_group() returns, as if dptk-run had started the ranks.
///
/// The ranks inherit the state of this process, except its threads. So call spawn before the first thread is
/// started, and before MPI, CUDA or an OpenMP region is used. The ranks' stdin is empty. The ranks exit
/// without calling functions registered by atexit or destructors of static objects. They are killed when this
/// process ends.
///
/// If a rank fails, by an exception that leaves fn or otherwise, the other ranks receive SIGTERM 2 s later. A
/// rank that has not ended 30 s (DPTK_SHUTDOWN_TIMEOUT) after SIGTERM is killed. Then spawn throws an Error.
/// Its text says which rank has failed first and how, with the text of an exception that has left fn. Throws
/// ArgumentError if `size` is less than 1, or if this process has several threads.
template <class Fn>
void spawn(int size, Fn&& fn) {
    if (size < 1) throw ArgumentError(detail::text("spawn with ", size, " ranks: expected at least 1"));
    if (const int threads = detail::count_own_threads(); threads > 1) {
        throw ArgumentError(
            detail::text("spawn forks this process, but its ", threads,
                         " threads cannot be forked: call spawn before any thread is started"));
    }
    const auto run_fn = [&fn](ProcessGroup& group) { fn(group); };
    detail::SpawnedRanks ranks(size, [&run_fn](int) { return detail::run_spawned_rank(run_fn); });
    const std::optional<detail::FirstFailure> failure = ranks.wait();
    if (!failure) return;
    std::string message = detail::text("spawn: ", failure->headline);
    if (failure->kind == detail::FirstFailure::Kind::own && failure->who.note) {
        message += detail::text(": ", failure->who.note->text);
    }
    throw Error(message);
}

}  // namespace DPTK_NAMESPACE

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/comm/spawn.ipp"
#endif
