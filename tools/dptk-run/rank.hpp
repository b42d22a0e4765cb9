// One rank: its process and its output.
#pragma once

#include <dptk/control/launch/detail/rank_environment.hpp>
#include <dptk/control/process/awake_clock.hpp>

#include <sys/types.h>

#include <array>
#include <chrono>
#include <string>

#include "elastic_members.hpp"
#include "job.hpp"
#include "rank_output.hpp"
#include "signals.hpp"

namespace run {

/// Where the ranks of one attempt find each other, and the directory for their failure reports
/// (DPTK_ERROR_FILE).
struct Rendezvous {
    dptk::detail::JobPlace place;
    std::string reports_dir;
};

class Rank {
  public:
    /// Starts the process. Throws dptk::Error if the process cannot be started, or one of its files or pipes
    /// cannot be opened.
    Rank(const Job& job, const Rendezvous& rendezvous, int local_rank, const Signals& signals,
         Console& console, std::array<LastWriter, 2>& last_writers, ElasticMembers* members);

    [[nodiscard]] int number() const { return place_.rank; }
    [[nodiscard]] int local_rank() const { return place_.local_rank; }
    /// Its number in an elastic job; 0 in another one.
    [[nodiscard]] dptk::detail::MemberId member() const { return member_; }
    [[nodiscard]] pid_t process() const { return process_; }
    [[nodiscard]] const std::string& report_path() const { return report_path_; }
    [[nodiscard]] std::array<RankStream, 2>& streams() { return streams_; }
    [[nodiscard]] Tail& tail() { return tail_; }

    int stop_signal = 0;  ///< the signal that has stopped (suspended) the process; 0 while it runs
    dptk::detail::AwakeClock::time_point stopped_since{};  ///< valid while stop_signal is not 0
    bool ended = false;

  private:
    [[nodiscard]] pid_t start(const Job& job, const Rendezvous& rendezvous, const Signals& signals,
                              ElasticMembers* members);

    dptk::detail::RankPlace place_;
    std::string report_path_;
    Tail tail_;
    std::array<RankStream, 2> streams_;
    dptk::detail::MemberId member_;
    pid_t process_;
};

}  // namespace run
