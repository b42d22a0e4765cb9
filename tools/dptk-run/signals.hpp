// Signals that dptk-run handles: SIGCHLD, and those that it forwards to the ranks.
#pragma once

#include <signal.h>

#include <optional>

namespace run {

/// Whether the signal asks the job to end. Other signals (SIGUSR1, SIGUSR2) are only forwarded to the ranks.
[[nodiscard]] bool asks_to_end(int signal);

/// Receives signals through a signalfd, as events of the poll loop.
class Signals {
  public:
    Signals();
    Signals(const Signals&) = delete;
    Signals& operator=(const Signals&) = delete;
    ~Signals();

    [[nodiscard]] int descriptor() const { return descriptor_; }

    /// The next pending signal, if there is one.
    [[nodiscard]] std::optional<int> next() const;

    /// Restores the signal handlers and the signal mask. A child calls it before execve.
    void undo() const;

  private:
    sigset_t handled_{};
    sigset_t before_{};
    int descriptor_;
};

}  // namespace run
