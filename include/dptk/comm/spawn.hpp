/// Ranks that are processes of this host, without a launcher: spawn(n, fn) forks the calling process n times
/// and runs fn in each. For tests, and for programs that start their own ranks.
#pragma once

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <functional>
#include <iostream>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "dptk/comm/init.hpp"
#include "dptk/control/child_process.hpp"
#include "dptk/control/failure_note.hpp"
#include "dptk/control/first_failure.hpp"
#include "dptk/control/held_port.hpp"
#include "dptk/control/program_end.hpp"
#include "dptk/control/random_word.hpp"
#include "dptk/control/rank_environment.hpp"
#include "dptk/control/stop_schedule.hpp"
#include "dptk/control/temporary_directory.hpp"

namespace dptk {

namespace detail {

/// What is buffered would be written by every process that inherits the buffer.
inline void flush_standard_streams() {
    std::cout.flush();
    std::cerr.flush();
    std::clog.flush();
    std::fflush(nullptr);
}

/// Threads of this process; 1 where the system does not tell.
[[nodiscard]] inline int count_own_threads() {
    int threads = 1;
    std::FILE* const file = std::fopen("/proc/self/status", "re");
    if (file == nullptr) return threads;
    for (char line[256]; std::fgets(line, sizeof line, file) != nullptr;) {
        if (std::sscanf(line, "Threads: %d", &threads) == 1) break;
    }
    std::fclose(file);
    return threads;
}

inline void replace_launcher_environment(const std::vector<EnvironmentVariable>& variables) {
    std::vector<std::string> stale;
    for (char** entry = environ; *entry != nullptr; ++entry) {
        const std::string name(*entry, std::strcspn(*entry, "="));
        if (is_stale_launcher_variable(name)) stale.push_back(name);
    }
    for (const std::string& name : stale) unsetenv(name.c_str());
    for (const auto& [name, value] : variables) setenv(name.c_str(), value.c_str(), 1);
}

/// In a spawned rank. Its group is closed before what has happened is told.
inline int run_spawned_rank(const std::function<void(ProcessGroup&)>& fn) noexcept {
    const auto failed = [](FailureKind kind, const char* what) {
        ProgramEnd::get().await_readers();
        const char* const path = std::getenv("DPTK_ERROR_FILE");
        const std::optional<FailureNote> earlier = read_failure_note(path);
        if (!earlier || earlier->kind == FailureKind::cause) write_failure_note(path, {kind, what});
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

    SpawnedRanks(int size, const Body& body) : start_(Clock::now()), files_("dptk-spawn") {
        const JobPlace job{.master_port = port_.number(), .run_id = random_word()};
        flush_standard_streams();
        try {
            for (int rank = 0; rank < size; ++rank) start(rank, size, job, body);
        } catch (...) {
            kill_all();
            throw;
        }
    }

    SpawnedRanks(const SpawnedRanks&) = delete;
    SpawnedRanks& operator=(const SpawnedRanks&) = delete;
    ~SpawnedRanks() { kill_all(); }

    /// Returns when all have ended. After a failure those that run are stopped.
    [[nodiscard]] std::optional<FirstFailure> wait() {
        while (true) {
            const auto now = Clock::now();
            look_for_changes(now);
            if (running_.empty()) return find_first_failure(ends_, stopped_);
            act(schedule_.due(now));
            std::this_thread::sleep_for(std::chrono::milliseconds(5));
        }
    }

  private:
    using Clock = std::chrono::steady_clock;

    struct Running {
        int rank;
        pid_t process;
        int stop_signal;  // 0 while it runs
    };

    void start(int rank, int size, const JobPlace& job, const Body& body) {
        const RankPlace place{.rank = rank,
                              .world_size = size,
                              .local_rank = rank,
                              .local_world_size = size,
                              .group_rank = 0,
                              .group_world_size = 1};
        const std::string note = note_path(rank);
        const pid_t process = fork_rank([&]() noexcept {
            replace_launcher_environment(rank_environment(place, job, note));
            return body(rank);
        });
        running_.push_back({rank, process, 0});
    }

    void look_for_changes(Clock::time_point now) {
        std::erase_if(running_, [&](Running& rank) {
            siginfo_t seen{};
            constexpr int changes = WEXITED | WSTOPPED | WCONTINUED;
            const auto id = static_cast<id_t>(rank.process);
            while (waitid(P_PID, id, &seen, changes | WNOHANG | WNOWAIT) == 0 && seen.si_pid != 0) {
                const bool ended = seen.si_code != CLD_STOPPED && seen.si_code != CLD_CONTINUED;
                if (ended) return note_end(rank, now);
                rank.stop_signal = seen.si_code == CLD_STOPPED ? seen.si_status : 0;
                static_cast<void>(waitid(P_PID, id, &seen, (changes & ~WEXITED) | WNOHANG));
                seen = {};
            }
            return false;
        });
    }

    bool note_end(const Running& rank, Clock::time_point now) {
        kill_rank(rank.process);  // what it leaves behind; its number is its own until it is waited for
        int status = 0;
        waitpid(rank.process, &status, 0);
        ends_.push_back({.rank = rank.rank,
                         .process = rank.process,
                         .end = ChildEnd(status),
                         .after = now - start_,
                         .note = read_failure_note(note_path(rank.rank).c_str()),
                         .asked_to_end = schedule_.asked()});
        if (!ends_.back().end.well()) schedule_.failure(now);
        return true;
    }

    void act(StopSchedule::Action action) {
        if (action == StopSchedule::Action::none) return;
        for (const Running& rank : running_) {
            if (action == StopSchedule::Action::kill) {
                kill_rank(rank.process);
                continue;
            }
            if (rank.stop_signal != 0) stopped_.push_back({rank.rank, rank.stop_signal});
            ask_to_end(rank.process, SIGTERM);
        }
    }

    void kill_all() noexcept {
        for (const Running& rank : running_) {
            kill_rank(rank.process);
            waitpid(rank.process, nullptr, 0);
        }
        running_.clear();
    }

    [[nodiscard]] std::string note_path(int rank) const { return text(files_.path(), "/rank-", rank); }

    Clock::time_point start_;
    TemporaryDirectory files_;
    HeldPort port_;
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
    const std::optional<FirstFailure> failure = ranks.wait();
    if (!failure) return;
    std::string message = detail::text("spawn: ", failure->headline);
    if (failure->kind == FirstFailure::Kind::own && failure->who.note) {
        message += detail::text(": ", failure->who.note->text);
    }
    throw Error(message);
}

}  // namespace dptk
