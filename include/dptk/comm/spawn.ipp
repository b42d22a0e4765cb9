#pragma once

#include "dptk/comm/spawn.hpp"

#include <sys/wait.h>

#include <csignal>
#include <cstdio>
#include <iostream>

#include "dptk/control/launch/job_request.hpp"
#include "dptk/control/process/child_process.hpp"
#include "dptk/control/process/random_word.hpp"
#include "dptk/core/detail/algorithms.hpp"
#include "dptk/core/log.hpp"

namespace DPTK_NAMESPACE::detail {

DPTK_INLINE void flush_standard_streams() {
    std::cout.flush();
    std::cerr.flush();
    std::clog.flush();
    std::fflush(nullptr);
}

DPTK_INLINE int count_own_threads() {
    int threads = 1;
    std::FILE* const file = std::fopen("/proc/self/status", "re");
    if (file == nullptr) return threads;
    for (char line[256]; std::fgets(line, sizeof line, file) != nullptr;) {
        if (std::sscanf(line, "Threads: %d", &threads) == 1) break;
    }
    std::fclose(file);
    return threads;
}

DPTK_INLINE void replace_launcher_environment(const std::vector<EnvironmentVariable>& variables) {
    std::vector<std::string> stale;
    for (char** entry = environ; *entry != nullptr; ++entry) {
        const std::string name(*entry, std::strcspn(*entry, "="));
        if (is_stale_launcher_variable(name)) stale.push_back(name);
    }
    for (const std::string& name : stale) unsetenv(name.c_str());
    for (const auto& [name, value] : variables) setenv(name.c_str(), value.c_str(), 1);
}

inline constexpr const char* shutdown_variable = "DPTK_SHUTDOWN_TIMEOUT";

DPTK_INLINE SpawnedRanks::SpawnedRanks(int size, const Body& body)
    : start_(Clock::now()),
      shutdown_timeout_(environment_seconds(shutdown_variable).value_or(default_shutdown_timeout)),
      files_("dptk-spawn") {
    const JobPlace job{.master_port = port_.number(), .run_id = random_word()};
    flush_standard_streams();
    try {
        for (int rank = 0; rank < size; ++rank) start(rank, size, job, body);
    } catch (...) {
        kill_all();
        throw;
    }
}

DPTK_INLINE SpawnedRanks::~SpawnedRanks() {
    kill_all();
}

DPTK_INLINE std::optional<FirstFailure> SpawnedRanks::wait() {
    while (true) {
        const auto now = AwakeClock::now();
        poll_ranks(now);
        if (running_.empty()) return find_first_failure(ends_, stopped_);
        act(schedule_.due(now));
        AwakeClock::sleep_for(std::chrono::milliseconds(5));
    }
}

DPTK_INLINE void SpawnedRanks::start(int rank, int size, const JobPlace& job, const Body& body) {
    const RankPlace place{.rank = rank,
                          .world_size = size,
                          .local_rank = rank,
                          .local_world_size = size,
                          .group_rank = 0,
                          .group_world_size = 1};
    const std::string report = report_path(rank);
    const pid_t process = fork_rank([&]() noexcept {
        replace_launcher_environment(rank_environment(place, job, report));
        return body(rank);
    });
    running_.push_back({rank, process, 0});
}

DPTK_INLINE void SpawnedRanks::poll_ranks(StopSchedule::Time now) {
    detail::erase_if(running_, [&](Running& rank) {
        siginfo_t seen{};
        constexpr int changes = WEXITED | WSTOPPED | WCONTINUED;
        const auto id = static_cast<id_t>(rank.process);
        while (waitid(P_PID, id, &seen, changes | WNOHANG | WNOWAIT) == 0 && seen.si_pid != 0) {
            const bool ended = seen.si_code != CLD_STOPPED && seen.si_code != CLD_CONTINUED;
            if (ended) return record_end(rank, now);
            rank.stop_signal = seen.si_code == CLD_STOPPED ? seen.si_status : 0;
            static_cast<void>(waitid(P_PID, id, &seen, (changes & ~WEXITED) | WNOHANG));
            seen = {};
        }
        return false;
    });
}

DPTK_INLINE bool SpawnedRanks::record_end(const Running& rank, StopSchedule::Time now) {
    kill_rank(rank.process);  // kills the rank's remaining children; the pid stays reserved until waitpid
    int status = 0;
    waitpid(rank.process, &status, 0);
    ends_.push_back({.rank = rank.rank,
                     .process = rank.process,
                     .end = ChildEnd(status),
                     .after = Clock::now() - start_,
                     .note = read_failure_report(report_path(rank.rank).c_str()),
                     .asked_to_end = schedule_.asked()});
    if (!ends_.back().end.well()) schedule_.failure(now);
    return true;
}

DPTK_INLINE void SpawnedRanks::act(StopSchedule::Action action) {
    if (action == StopSchedule::Action::none) return;
    std::vector<int> killed;
    for (const Running& rank : running_) {
        if (action == StopSchedule::Action::kill) {
            kill_rank(rank.process);
            killed.push_back(rank.rank);
            continue;
        }
        if (rank.stop_signal != 0) stopped_.push_back({rank.rank, rank.stop_signal});
        ask_to_end(rank.process, SIGTERM);
    }
    if (killed.empty()) return;
    log(LogLevel::warning, -1,
        text("spawn: ", killed_text(killed), ": ",
             still_running_text(shutdown_timeout_, SIGTERM, shutdown_variable)));
}

DPTK_INLINE void SpawnedRanks::kill_all() noexcept {
    for (const Running& rank : running_) {
        kill_rank(rank.process);
        waitpid(rank.process, nullptr, 0);
    }
    running_.clear();
}

DPTK_INLINE std::string SpawnedRanks::report_path(int rank) const {
    return text(files_.path(), "/rank-", rank);
}

}  // namespace DPTK_NAMESPACE::detail
