#include "rank_output.hpp"

#include <dptk/core/detail/text.hpp>
#include <dptk/core/error.hpp>

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

namespace run {

namespace {

using dptk::detail::text;

/// An unfinished line is forwarded this long after its last byte.
constexpr std::chrono::milliseconds flush_delay{100};

int open_log(const std::string& path) {
    const int file = open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (file < 0) throw dptk::BackendError(text("cannot write ", path, ": ", std::strerror(errno)));
    return file;
}

/// Returns whether all bytes were written. If not, errno says why.
bool write_all(int file, std::string_view bytes) {
    while (!bytes.empty()) {
        const ssize_t count = write(file, bytes.data(), bytes.size());
        if (count < 0 && errno == EINTR) continue;
        if (count < 0) return false;
        bytes.remove_prefix(static_cast<std::size_t>(count));
    }
    return true;
}

/// The line without its end.
std::string_view content_of(std::string_view line) {
    while (line.ends_with('\n') || line.ends_with('\r')) line.remove_suffix(1);
    return line;
}

}  // namespace

void Tail::add(std::string_view line) {
    const std::string_view content = content_of(line);
    const bool overwrites_last = progress_;
    progress_ = line.ends_with('\r');
    if (progress_ && content.empty()) return;
    if (overwrites_last && !lines_.empty()) lines_.pop_back();
    lines_.emplace_back(content.substr(0, max_line_bytes));
    if (lines_.size() > max_lines) lines_.pop_front();
}

RankStream::RankStream(const RankOutputOptions& options, Stream stream, Console& console,
                       LastWriter& last_writer)
    : rank_(options.rank),
      single_rank_(options.single_rank),
      stream_(stream),
      console_(console),
      last_writer_(last_writer) {
    const Streams one = stream == Stream::out ? Streams::out : Streams::err;
    to_console_ = includes(options.console, one);
    if (includes(options.files, one)) {
        path_ = options.log_dir + (stream == Stream::out ? "/stdout.log" : "/stderr.log");
        file_ = open_log(path_);
    }
    std::array<int, 2> ends{};
    if (pipe2(ends.data(), O_CLOEXEC) != 0) {
        if (file_ >= 0) close(file_);
        throw dptk::BackendError(text("cannot open a pipe for rank ", rank_, ": ", std::strerror(errno)));
    }
    read_end_ = ends[0];
    write_end_ = ends[1];
    fcntl(read_end_, F_SETFL, O_NONBLOCK);
}

RankStream::~RankStream() {
    for (const int descriptor : {read_end_, write_end_, file_}) {
        if (descriptor >= 0) close(descriptor);
    }
}

void RankStream::close_write_end() {
    close(write_end_);
    write_end_ = -1;
}

int RankStream::read_end() const {
    return to_console_ && console_.full(stream_) ? -1 : read_end_;
}

bool RankStream::read(Tail& tail) {
    std::array<char, std::size_t{1} << 16> memory;
    const ssize_t count = ::read(read_end_, memory.data(), memory.size());
    if (count < 0) return false;
    if (count == 0) {
        end(tail);
        return false;
    }
    const std::string_view bytes(memory.data(), static_cast<std::size_t>(count));
    last_read_ = std::chrono::steady_clock::now();
    if (file_ >= 0 && !write_all(file_, bytes)) give_up_on_file();
    lines_.add(bytes, [&](std::string_view line) { forward(line, tail); });
    return true;
}

/// Closes the log file, for example because the disk is full. The job continues, and further output is
/// written to the console.
void RankStream::give_up_on_file() {
    console_.say(text("cannot write ", path_, ": ", std::strerror(errno), ": the output of rank ", rank_,
                      " is not kept in this file from here on, but is printed"));
    close(file_);
    file_ = -1;
    to_console_ = true;
}

void RankStream::end(Tail& tail) {
    lines_.flush([&](std::string_view line) { forward(line, tail); });
    close(read_end_);
    read_end_ = -1;
}

std::optional<RankStream::Time> RankStream::flush_at() const {
    if (lines_.empty() || !(single_rank_ || lines_.ends_with_return())) return std::nullopt;
    return last_read_ + flush_delay;
}

void RankStream::flush_if_due(Time now, Tail& tail) {
    const std::optional<Time> due = flush_at();
    if (due && *due <= now) lines_.flush([&](std::string_view line) { forward(line, tail); });
}

void RankStream::forward(std::string_view line, Tail& tail) {
    tail.add(line);
    if (!to_console_) return;
    if (single_rank_) return console_.write(stream_, line);

    if (last_writer_.in_progress && last_writer_.rank != rank_) console_.write(stream_, "\n");
    console_.write(stream_, text("[rank ", rank_, "] ", line));
    const bool ended = line.ends_with('\n') || line.ends_with('\r');
    if (!ended) console_.write(stream_, "\n");
    last_writer_ = {rank_, line.ends_with('\r')};
}

}  // namespace run
