/// Processes that run as ranks: forked so that they end with their parent and can be reached together with
/// their own children, and described when they have ended. What dptk-run and spawn have in common. For Linux.
#pragma once

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string>

#include "dptk/core/error.hpp"
#include "dptk/core/text.hpp"

namespace dptk {

/// "SIGKILL"; of a rarer one "signal 35".
[[nodiscard]] inline std::string signal_name(int signal) {
    struct Name {
        int signal;
        const char* name;
    };
    static constexpr Name names[] = {
        {SIGHUP, "SIGHUP"},   {SIGINT, "SIGINT"},   {SIGQUIT, "SIGQUIT"}, {SIGILL, "SIGILL"},
        {SIGTRAP, "SIGTRAP"}, {SIGABRT, "SIGABRT"}, {SIGBUS, "SIGBUS"},   {SIGFPE, "SIGFPE"},
        {SIGKILL, "SIGKILL"}, {SIGUSR1, "SIGUSR1"}, {SIGSEGV, "SIGSEGV"}, {SIGUSR2, "SIGUSR2"},
        {SIGPIPE, "SIGPIPE"}, {SIGALRM, "SIGALRM"}, {SIGTERM, "SIGTERM"}, {SIGSTOP, "SIGSTOP"},
        {SIGTSTP, "SIGTSTP"}, {SIGTTIN, "SIGTTIN"}, {SIGTTOU, "SIGTTOU"}, {SIGXCPU, "SIGXCPU"},
        {SIGXFSZ, "SIGXFSZ"}, {SIGSYS, "SIGSYS"}};
    for (const Name& known : names) {
        if (known.signal == signal) return known.name;
    }
    return detail::text("signal ", signal);
}

/// How a process has ended: what waitpid says.
class ChildEnd {
  public:
    ChildEnd() = default;
    explicit ChildEnd(int wait_status) : wait_status_(wait_status) {}

    [[nodiscard]] bool well() const noexcept { return exit_status() == 0; }

    /// The signal that killed it, or 0.
    [[nodiscard]] int signal() const noexcept {
        return WIFSIGNALED(wait_status_) ? WTERMSIG(wait_status_) : 0;
    }

    /// As shells count: 128 + the number of the signal that killed it.
    [[nodiscard]] int exit_status() const noexcept {
        return signal() != 0 ? 128 + signal() : WEXITSTATUS(wait_status_);
    }

    /// "exit status 3", or "killed by SIGKILL (9)".
    [[nodiscard]] std::string text() const {
        if (signal() == 0) return detail::text("exit status ", exit_status());
        return detail::text("killed by ", signal_name(signal()), " (", signal(), ")",
                            WCOREDUMP(wait_status_) ? ", core dumped" : "");
    }

  private:
    int wait_status_ = 0;
};

namespace detail {

/// In the child: its own process group, death with the thread that has forked it, nothing to read.
inline void become_rank(pid_t parent) noexcept {
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(128 + SIGKILL);  // the parent died before it could be noticed
    const int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (null >= 0) dup2(null, STDIN_FILENO);
    if (null > STDIN_FILENO) close(null);
}

}  // namespace detail

/// Forks a process that runs `body`, which must not throw, and leaves by _Exit with the status it returns. It
/// leads its own process group, has /dev/null as stdin, and is killed when the calling thread ends. Returns
/// its id. Throws BackendError where the system allows no further process.
template <class Body>
[[nodiscard]] pid_t fork_rank(Body&& body) {
    const pid_t parent = getpid();
    const pid_t child = fork();
    if (child == 0) {
        detail::become_rank(parent);
        std::_Exit(body());
    }
    if (child < 0) throw BackendError(detail::text("cannot start a process: ", std::strerror(errno)));
    setpgid(child, child);  // the child does the same; whoever comes first
    return child;
}

/// Sends a signal to a rank and its children, and wakes those that are stopped, so that they can end.
inline void ask_to_end(pid_t rank, int signal) noexcept {
    kill(-rank, signal);
    kill(-rank, SIGCONT);
}

/// Kills a rank and its children. The rank must not have been waited for yet.
inline void kill_rank(pid_t rank) noexcept {
    kill(-rank, SIGKILL);
}

}  // namespace dptk
