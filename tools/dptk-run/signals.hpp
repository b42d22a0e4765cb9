// The signals that dptk-run takes: of its children, and those it passes on to them.
#pragma once

#include <signal.h>

#include <optional>

namespace run {

/// Whether this signal asks to end, rather than to tell the ranks something.
[[nodiscard]] bool asks_to_end(int signal);

/// Signals arrive at a descriptor, between other events, and interrupt nothing.
class Signals {
  public:
    Signals();
    Signals(const Signals&) = delete;
    Signals& operator=(const Signals&) = delete;
    ~Signals();

    [[nodiscard]] int descriptor() const { return descriptor_; }

    /// The next that has arrived.
    [[nodiscard]] std::optional<int> next() const;

    /// In a child, before it runs another program: as if none of this had been.
    void undo() const;

  private:
    sigset_t taken_{};
    sigset_t before_{};
    int descriptor_;
};

}  // namespace run
