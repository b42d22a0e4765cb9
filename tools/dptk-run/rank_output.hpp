// The output of one rank: RankStream forwards it line by line to the console and writes it to a log file, and
// Tail keeps the last lines for the failure report.
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

/// The last lines that a rank has printed, on both streams together.
class Tail {
  public:
    void add(std::string_view line);
    [[nodiscard]] const std::deque<std::string>& lines() const { return lines_; }

  private:
    static constexpr std::size_t max_lines = 10;
    static constexpr std::size_t max_line_bytes = 500;
    std::deque<std::string> lines_;
    bool progress_ = false;  // the last line ended with \r: the next one overwrites it
};

/// The rank that wrote last to a stream of the console. Used to prevent a line of one rank from overwriting
/// the progress line of another rank.
struct LastWriter {
    int rank = -1;
    bool in_progress = false;
};

struct RankOutputOptions {
    int rank = 0;
    bool single_rank = false;  // lines get no prefix, and unfinished lines are forwarded after a short delay
    std::string log_dir;       // empty: no files
    Streams files = Streams::none;
    Streams console = Streams::all;
};

/// The pipe through which dptk-run reads stdout or stderr of a rank.
class RankStream {
  public:
    /// Opens the pipe and the log file. Throws dptk::Error if one of them cannot be opened.
    RankStream(const RankOutputOptions& options, Stream stream, Console& console, LastWriter& last_writer);
    RankStream(const RankStream&) = delete;
    RankStream& operator=(const RankStream&) = delete;
    ~RankStream();

    /// The end of the pipe that the rank writes to.
    [[nodiscard]] int write_end() const { return write_end_; }
    void close_write_end();

    /// The descriptor to poll; -1 if the stream has ended or the console's queue is full.
    [[nodiscard]] int read_end() const;
    [[nodiscard]] bool at_end() const { return read_end_ < 0; }

    /// Reads the available bytes once. Returns whether there were any.
    bool read(Tail& tail);

    /// Forwards the unfinished line and closes the read end. Call it when no process is left that could
    /// write.
    void end(Tail& tail);

    using Time = std::chrono::steady_clock::time_point;

    /// The time at which flush_if_due() has to be called to forward an unfinished line; empty if no call is
    /// needed.
    [[nodiscard]] std::optional<Time> flush_at() const;
    void flush_if_due(Time now, Tail& tail);

  private:
    void forward(std::string_view line, Tail& tail);
    void give_up_on_file();

    int rank_;
    bool single_rank_;
    Stream stream_;
    Console& console_;
    LastWriter& last_writer_;
    bool to_console_;
    int read_end_ = -1;
    int write_end_ = -1;
    int file_ = -1;
    std::string path_;  // of the file
    LineSplitter lines_;
    Time last_read_{};
};

}  // namespace run
