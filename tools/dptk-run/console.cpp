#include "console.hpp"

#include <dptk/core/detail/errno_text.hpp>
#include <dptk/core/detail/text.hpp>

#include <limits.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace run {

namespace {

constexpr std::size_t full_at = std::size_t{1} << 20;

bool same_file(int a, int b) {
    struct stat of_a {};
    struct stat of_b {};
    return fstat(a, &of_a) == 0 && fstat(b, &of_b) == 0 && of_a.st_dev == of_b.st_dev &&
           of_a.st_ino == of_b.st_ino && of_a.st_rdev == of_b.st_rdev;
}

/// The number of bytes to write next: at most PIPE_BUF, which a pipe that polls as writable accepts without
/// blocking, and whole lines if possible, because another process may write to the same pipe.
std::size_t next_piece(std::string_view bytes) {
    if (bytes.size() <= PIPE_BUF) return bytes.size();
    const std::size_t newline = bytes.rfind('\n', PIPE_BUF - 1);
    return newline == std::string_view::npos ? PIPE_BUF : newline + 1;
}

}  // namespace

Console::Console()
    : queues_{{{STDOUT_FILENO, {}}, {STDERR_FILENO, {}}}}, shared_(same_file(STDOUT_FILENO, STDERR_FILENO)) {}

void Console::write(Stream stream, std::string_view bytes) {
    Queue& queue = queues_[index(stream)];
    if (!queue.failed) queue.bytes += bytes;
}

void Console::say(std::string_view message) {
    write(Stream::err, dptk::detail::text("dptk-run: ", message, "\n"));
}

bool Console::full(Stream stream) const {
    return queues_[index(stream)].bytes.size() >= full_at;
}

bool Console::empty() const {
    return std::ranges::all_of(queues_, [](const Queue& queue) { return queue.bytes.empty(); });
}

void Console::add_to(std::vector<pollfd>& waits) const {
    for (const Queue& queue : queues_) {
        if (!queue.bytes.empty()) waits.push_back({queue.descriptor, POLLOUT, 0});
    }
}

void Console::flush() {
    for (Queue& queue : queues_) flush(queue);
}

void Console::flush(Queue& queue) {
    std::size_t written = 0;
    while (written < queue.bytes.size()) {
        pollfd ready{queue.descriptor, POLLOUT, 0};
        if (poll(&ready, 1, 0) <= 0) break;
        const std::string_view rest = std::string_view(queue.bytes).substr(written);
        const ssize_t count = ::write(queue.descriptor, rest.data(), next_piece(rest));
        if (count < 0 && (errno == EAGAIN || errno == EINTR)) break;
        if (count < 0) return drop(queue, errno);
        written += static_cast<std::size_t>(count);
    }
    queue.bytes.erase(0, written);
}

/// Drops the queue after a write error. If the reader has closed the pipe, the job ends, as a single program
/// would. Other errors, such as a full disk, do not end the job.
void Console::drop(Queue& queue, int reason) {
    queue.bytes.clear();
    queue.failed = true;
    if (reason == EPIPE) {
        closed_ = true;
    } else if (&queue == queues_.data() && !shared_) {
        say(dptk::detail::text("cannot write to stdout: ", dptk::detail::errno_text(reason)));
    }
}

}  // namespace run
