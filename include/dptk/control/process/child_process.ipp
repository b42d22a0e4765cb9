#pragma once

#include "dptk/control/process/child_process.hpp"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include <csignal>

namespace DPTK_NAMESPACE::detail {

DPTK_INLINE std::string signal_name(int signal) {
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
    return text("signal ", signal);
}

DPTK_INLINE int ChildEnd::signal() const noexcept {
    return WIFSIGNALED(wait_status_) ? WTERMSIG(wait_status_) : 0;
}

DPTK_INLINE int ChildEnd::exit_status() const noexcept {
    return signal() != 0 ? 128 + signal() : WEXITSTATUS(wait_status_);
}

DPTK_INLINE std::string ChildEnd::text() const {
    if (signal() == 0) return detail::text("exit status ", exit_status());
    return detail::text("killed by ", signal_name(signal()), " (", signal(), ")",
                        WCOREDUMP(wait_status_) ? ", core dumped" : "");
}

DPTK_INLINE void become_rank(pid_t parent) noexcept {
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(128 + SIGKILL);  // the parent ended before prctl()
    const int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (null >= 0) dup2(null, STDIN_FILENO);
    if (null > STDIN_FILENO) close(null);
}

DPTK_INLINE void ask_to_end(pid_t rank, int signal) noexcept {
    kill(-rank, signal);
    kill(-rank, SIGCONT);
}

DPTK_INLINE void kill_rank(pid_t rank) noexcept {
    kill(-rank, SIGKILL);
}

}  // namespace DPTK_NAMESPACE::detail
