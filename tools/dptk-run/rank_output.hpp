// What one rank prints: passed on line by line, kept in files, and its last lines remembered for the report.
#pragma once

#include <poll.h>

#include <chrono>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "console.hpp"
#include "lines.hpp"
#include "options.hpp"

namespace run {

/// The last lines of a rank, of both its streams.
class Tail {
  public:
    void add(std::string_view line);
    [[nodiscard]] const std::deque<std::string>& lines() const { return lines_; }

  private:
    static constexpr std::size_t max_lines = 10;
    static constexpr std::size_t max_line_bytes = 500;
    std::deque<std::string> lines_;
    bool progress_ = false;  // the last line would be overwritten by the next
};

/// Who writes to one stream of the console, so that a line of one rank does not overwrite another's progress.
struct ConsoleTurn {
    int rank = -1;
    bool in_progress = false;
};

struct RankOutputOptions {
    int rank = 0;
    bool alone = false;   // no prefix, and nothing is held back for long
    std::string log_dir;  // empty: no files
    Streams files = Streams::none;
    Streams console = Streams::all;
};

/// One of a rank's streams: the end of a pipe that dptk-run reads.
class RankStream {
  public:
    /// Throws dptk::Error where a pipe or a file cannot be opened.
    RankStream(const RankOutputOptions& options, Stream stream, Console& console, ConsoleTurn& turn);
    RankStream(const RankStream&) = delete;
    RankStream& operator=(const RankStream&) = delete;
    ~RankStream();

    /// The end that the rank writes to.
    [[nodiscard]] int write_end() const { return write_end_; }
    void close_write_end();

    /// What to wait for: -1 where the stream is at its end, or the console takes no more.
    [[nodiscard]] int read_end() const;
    [[nodiscard]] bool at_end() const { return read_end_ < 0; }

    /// Reads once what is there. Whether there was anything.
    bool read(Tail& tail);

    /// No process is left that could write.
    void end(Tail& tail);

    using Time = std::chrono::steady_clock::time_point;

    /// When what is held back has to be passed on; then flush_if_due does it.
    [[nodiscard]] std::optional<Time> flush_at() const;
    void flush_if_due(Time now, Tail& tail);

  private:
    void pass_on(std::string_view line, Tail& tail);

    int rank_;
    bool alone_;
    Stream stream_;
    Console& console_;
    ConsoleTurn& turn_;
    bool to_console_;
    int read_end_ = -1;
    int write_end_ = -1;
    int file_ = -1;
    LineSplitter lines_;
    Time last_read_{};
};

}  // namespace run
