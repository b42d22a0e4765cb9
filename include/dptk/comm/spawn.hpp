/// Ranks that are processes of this host, without a launcher: spawn(n, fn) forks the calling process n times
/// and runs fn in each. For tests, and for programs that start their own ranks.
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

/// What is buffered would be written by every process that inherits the buffer.
void flush_standard_streams();

/// Threads of this process; 1 where the system does not tell.
[[nodiscard]] int count_own_threads();

/// In a spawned rank. Its group is closed before what has happened is told.
inline int run_spawned_rank(const std::function<void(ProcessGroup&)>& fn) noexcept {
    const auto failed = [](FailureKind kind, const char* what) {
        ProgramEnd::get().await_readers();
        const char* const path = std::getenv("DPTK_ERROR_FILE");
        const std::optional<FailureReport> earlier = read_failure_report(path);
        if (!earlier || earlier->kind == FailureKind::cause) write_failure_report(path, {kind, what});
        flush_standard_streams();
        return EXIT_FAILURE;
    };
    try {
        {
            ProcessGroup group = init_process_group();
            fn(group);
        }
        static_cast<void>(ProgramEnd::get().wait());  // no destructor of a static will do it
        flush_standard_streams();
        return EXIT_SUCCESS;
    } catch (const PeerLostError& error) {
        return failed(FailureKind::consequence, error.what());
    } catch (const std::exception& error) {
        return failed(FailureKind::cause, error.what());
    } catch (...) {
        return failed(FailureKind::cause, "an exception that is no std::exception");
    }
}

/// The forked ranks, seen from their parent. The destructor kills those that still run.
class SpawnedRanks {
  public:
    /// What a rank does: gets its number, must not throw, and returns its exit status.
    using Body = std::function<int(int rank)>;

    SpawnedRanks(int size, const Body& body);

    SpawnedRanks(const SpawnedRanks&) = delete;
    SpawnedRanks& operator=(const SpawnedRanks&) = delete;
    ~SpawnedRanks();

    /// Returns when all have ended. After a failure those that run are stopped.
    [[nodiscard]] std::optional<FirstFailure> wait();

  private:
    using Clock = std::chrono::steady_clock;

    struct Running {
        int rank;
        pid_t process;
        int stop_signal;  // 0 while it runs
    };

    void start(int rank, int size, const JobPlace& job, const Body& body);

    void look_for_changes(Clock::time_point now);

    bool note_end(const Running& rank, Clock::time_point now);

    void act(StopSchedule::Action action);

    void kill_all() noexcept;

    [[nodiscard]] std::string note_path(int rank) const;

    Clock::time_point start_;
    TemporaryDirectory files_;
    ReservedPort port_;
    StopSchedule schedule_;
    std::vector<Running> running_;
    std::vector<RankEnd> ends_;
    std::vector<StoppedRank> stopped_;
};

}  // namespace detail

/// Runs fn(ProcessGroup&) as `size` ranks, each a fork of this process, and returns when all have ended. They
/// find each other as if dptk-run had started them: fn gets what init_process_group() gives.
///
/// The ranks inherit all that this process holds, but none of its threads: call it before the first thread is
/// started, and before MPI, CUDA or an OpenMP region is used. They read nothing from stdin, leave without
/// running destructors of static objects or functions given to atexit, and are killed when this process ends.
///
/// When a rank fails, by an exception that leaves fn or in any other way, the others are ended within
/// seconds, and Error is thrown here: it names the rank that failed first, how, and its exception's text.
/// Throws ArgumentError for a size below 1 and where this process has several threads.
template <class Fn>
void spawn(int size, Fn&& fn) {
    if (size < 1) throw ArgumentError(detail::text("spawn with ", size, " ranks"));
    if (const int threads = detail::count_own_threads(); threads > 1) {
        throw ArgumentError(detail::text("spawn copies this process, but its ", threads,
                                         " threads cannot be copied: call it before the first is started"));
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
