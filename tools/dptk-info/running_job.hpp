// What a running job does, as its store tells it: dptk-info --job.
#pragma once

#include <dptk/control/health/rank_status.hpp>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace info {

struct RunningRank {
    std::string process;  ///< "host node0, process 4711"
    /// What it publishes; nullopt before its first heartbeat.
    std::optional<dptk::detail::RankStatus> status = std::nullopt;
    bool has_left = false;  ///< whether it has closed its group
};

struct RunningJob {
    std::string where;                                      ///< "tcp://node0:29500"
    std::optional<std::int64_t> generation = std::nullopt;  ///< of an elastic job
    std::string over = {};                                  ///< why an elastic job has ended
    std::string cause = {};                                 ///< why the ranks' group has failed
    std::vector<RunningRank> ranks = {};
};

/// Reads what the job does. `job` is the process number of one of its ranks on this host, or the host and
/// port of its store; then DPTK_RUN_ID and DPTK_TOKEN are those of the job. Throws dptk::Error if the job has
/// no store at a known address, or it cannot be reached.
[[nodiscard]] RunningJob read_running_job(const std::string& job);

/// A call in which some ranks wait for others.
struct Wait {
    std::uint64_t sequence = 0;
    std::string call;
    std::vector<int> waiting;
    std::vector<int> missing;  ///< the ranks that have not made the call yet

    /// "ranks 0,2 wait in all_reduce(sum, 4 x f32) #42 for rank 1"
    [[nodiscard]] std::string text() const;
};

/// Returns the calls in which ranks wait, by group.
[[nodiscard]] std::vector<Wait> find_waits(const RunningJob& job);

/// Returns the report as text for people.
[[nodiscard]] std::string to_text(const RunningJob& job);

/// Returns the report as one JSON object.
[[nodiscard]] std::string to_json(const RunningJob& job);

}  // namespace info
