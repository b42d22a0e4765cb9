/// Child processes that run as ranks, for dptk-run and spawn. A child is killed when the thread that forked
/// it ends, and can be signaled together with its own children. ChildEnd describes how a child ended.
/// Requires Linux.
#pragma once

#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <string>

#include "dptk/core/config.hpp"
#include "dptk/core/detail/errno_text.hpp"
#include "dptk/core/detail/text.hpp"
#include "dptk/core/error.hpp"

namespace DPTK_NAMESPACE::detail {

/// Returns the name of a signal, such as "SIGKILL", or "signal 35" for a signal without a known name.
[[nodiscard]] std::string signal_name(int signal);

/// How a process ended: the status that waitpid returns.
class ChildEnd {
  public:
    ChildEnd() = default;
    explicit ChildEnd(int wait_status) : wait_status_(wait_status) {}

    /// Returns whether the exit status is 0.
    [[nodiscard]] bool well() const noexcept { return exit_status() == 0; }

    /// Returns the signal that killed the process, or 0.
    [[nodiscard]] int signal() const noexcept;

    /// Returns the exit status; as in a shell, 128 + the signal number if a signal killed the process.
    [[nodiscard]] int exit_status() const noexcept;

    /// Returns a description: "exit status 3" or "killed by SIGKILL (9)".
    [[nodiscard]] std::string text() const;

  private:
    int wait_status_ = 0;
};

/// Prepares a forked child to run as a rank: creates its process group, requests SIGKILL when the parent
/// thread ends, and redirects stdin to /dev/null. Called in the child.
void become_rank(pid_t parent) noexcept;

/// Forks a process that runs `body`, which must not throw, and that ends by _Exit with the status that
/// `body` returns. The process leads its own process group, has /dev/null as stdin, and is killed when the
/// calling thread ends. Returns the process id. Throws BackendError if the system cannot start a process.
template <class Body>
[[nodiscard]] pid_t fork_rank(Body&& body) {
    const pid_t parent = getpid();
    const pid_t child = fork();
    if (child == 0) {
        become_rank(parent);
        std::_Exit(body());
    }
    if (child < 0) throw BackendError(text("cannot start a process: ", errno_text(errno)));
    setpgid(child, child);  // the child does the same; the earlier of the two calls takes effect
    return child;
}

/// Sends a signal to a rank and its children, and continues stopped processes, so that they can end.
void ask_to_end(pid_t rank, int signal) noexcept;

/// Kills a rank and its children. Must be called before waitpid() has reaped the rank.
void kill_rank(pid_t rank) noexcept;

}  // namespace DPTK_NAMESPACE::detail

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/control/process/child_process.ipp"
#endif
