// What dptk-run itself writes to: its stdout and stderr. A reader that is slow makes the ranks wait, not
// dptk-run, which must go on looking after them; so nothing here blocks.
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

    /// Queues bytes.
    void write(Stream stream, std::string_view bytes);

    /// Queues a line "dptk-run: ..." on stderr.
    void say(std::string_view message);

    /// Whether so much is queued that ranks should not add to it.
    [[nodiscard]] bool full(Stream stream) const;

    [[nodiscard]] bool empty() const;

    /// Whether a reader has gone away; what is queued for it is dropped.
    [[nodiscard]] bool closed() const { return closed_; }

    /// What to wait for.
    void add_to(std::vector<pollfd>& waits) const;

    /// Writes what can be written now.
    void flush();

    /// Writes all, waiting for the reader as long as `go_on` says so. It is asked ten times a second.
    template <class GoOn>
    void drain(GoOn&& go_on) {
        while (!empty() && go_on()) {
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
    bool shared_;  // both streams are one file: one queue keeps their order
    bool closed_ = false;
};

}  // namespace run
