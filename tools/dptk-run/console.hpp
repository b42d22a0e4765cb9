// Non-blocking, buffered output to dptk-run's own stdout and stderr. A slow reader makes the ranks wait, but
// never dptk-run, which must keep supervising them.
#pragma once

#include <poll.h>

#include <array>
#include <string>
#include <string_view>
#include <vector>

namespace run {

enum class Stream { out, err };

class Console {
  public:
    Console();

    /// Queues bytes for the stream.
    void write(Stream stream, std::string_view bytes);

    /// Queues a line "dptk-run: ..." on stderr.
    void say(std::string_view message);

    /// Whether the stream's queue has reached its limit. Do not read more output of ranks until the queue is
    /// shorter.
    [[nodiscard]] bool full(Stream stream) const;

    [[nodiscard]] bool empty() const;

    /// Whether the reader of stdout or stderr has closed its end of the pipe. The bytes that are queued for
    /// this reader are dropped.
    [[nodiscard]] bool closed() const { return closed_; }

    /// Appends the descriptors of streams with queued bytes, for poll().
    void add_to(std::vector<pollfd>& waits) const;

    /// Writes as much as possible without blocking.
    void flush();

    /// Writes all queued bytes. Blocks until they are written, or until `may_proceed` returns false. Calls
    /// `may_proceed` at least ten times a second.
    template <class MayProceed>
    void drain(MayProceed&& may_proceed) {
        while (!empty() && may_proceed()) {
            std::vector<pollfd> waits;
            add_to(waits);
            poll(waits.data(), waits.size(), 100);
            flush();
        }
    }

  private:
    struct Queue {
        int descriptor;
        std::string bytes;
        bool failed = false;
    };

    [[nodiscard]] std::size_t index(Stream stream) const { return stream == Stream::err && !shared_ ? 1 : 0; }
    void flush(Queue& queue);
    void drop(Queue& queue, int reason);

    std::array<Queue, 2> queues_;
    bool shared_;  // both streams are the same file; a single queue keeps their order
    bool closed_ = false;
};

}  // namespace run
