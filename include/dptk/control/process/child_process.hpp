/// Processes that run as ranks: forked so that they end with their parent and can be reached together with
/// their own children, and described when they have ended. What dptk-run and spawn have in common. For Linux.
#pragma once

#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string>

#include "dptk/core/config.hpp"
#include "dptk/core/detail/text.hpp"
#include "dptk/core/error.hpp"

namespace DPTK_NAMESPACE::detail {

/// "SIGKILL"; of a rarer one "signal 35".
[[nodiscard]] std::string signal_name(int signal);

/// How a process has ended: what waitpid says.
class ChildEnd {
  public:
    ChildEnd() = default;
    explicit ChildEnd(int wait_status) : wait_status_(wait_status) {}

    [[nodiscard]] bool well() const noexcept { return exit_status() == 0; }

    /// The signal that killed it, or 0.
    [[nodiscard]] int signal() const noexcept;

    /// As shells count: 128 + the number of the signal that killed it.
    [[nodiscard]] int exit_status() const noexcept;

    /// "exit status 3", or "killed by SIGKILL (9)".
    [[nodiscard]] std::string text() const;

  private:
    int wait_status_ = 0;
};

/// In the child: its own process group, death with the thread that has forked it, nothing to read.
void become_rank(pid_t parent) noexcept;

/// Forks a process that runs `body`, which must not throw, and leaves by _Exit with the status it returns. It
/// leads its own process group, has /dev/null as stdin, and is killed when the calling thread ends. Returns
/// its id. Throws BackendError where the system allows no further process.
template <class Body>
[[nodiscard]] pid_t fork_rank(Body&& body) {
    const pid_t parent = getpid();
    const pid_t child = fork();
    if (child == 0) {
        become_rank(parent);
        std::_Exit(body());
    }
    if (child < 0) throw BackendError(text("cannot start a process: ", std::strerror(errno)));
    setpgid(child, child);  // the child does the same; whoever comes first
    return child;
}

/// Sends a signal to a rank and its children, and wakes those that are stopped, so that they can end.
void ask_to_end(pid_t rank, int signal) noexcept;

/// Kills a rank and its children. The rank must not have been waited for yet.
void kill_rank(pid_t rank) noexcept;

}  // namespace DPTK_NAMESPACE::detail

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/control/process/child_process.ipp"
#endif
