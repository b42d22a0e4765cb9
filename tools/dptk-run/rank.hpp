// One rank: its process, and what it prints.
#pragma once

#include <dptk/control/launch/detail/rank_environment.hpp>

#include <sys/types.h>

#include <array>
#include <string>

#include "job.hpp"
#include "rank_output.hpp"
#include "signals.hpp"

namespace run {

/// Where the ranks of one attempt meet, and where they leave their notes.
struct Meeting {
    dptk::detail::JobPlace place;
    std::string notes_dir;
};

class Rank {
  public:
    /// Starts the process. Throws dptk::Error where that, or one of its files, cannot be had.
    Rank(const Job& job, const Meeting& meeting, int local_rank, const Signals& signals, Console& console,
         std::array<ConsoleTurn, 2>& turns);

    [[nodiscard]] int number() const { return place_.rank; }
    [[nodiscard]] int local_rank() const { return place_.local_rank; }
    [[nodiscard]] pid_t process() const { return process_; }
    [[nodiscard]] const std::string& note_path() const { return note_path_; }
    [[nodiscard]] std::array<RankStream, 2>& streams() { return streams_; }
    [[nodiscard]] Tail& tail() { return tail_; }

    int stop_signal = 0;  ///< what has stopped it, 0 while it runs
    bool ended = false;

  private:
    [[nodiscard]] pid_t start(const Job& job, const Meeting& meeting, const Signals& signals);

    dptk::detail::RankPlace place_;
    std::string note_path_;
    Tail tail_;
    std::array<RankStream, 2> streams_;
    pid_t process_;
};

}  // namespace run
