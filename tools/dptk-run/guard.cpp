#include "guard.hpp"

#include <dptk/control/process/temporary_directory.hpp>
#include <dptk/core/error.hpp>

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include <array>
#include <csignal>
#include <set>

namespace run {

namespace {

void detach_from_terminal() {
    setsid();
    for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2}) ::signal(signal, SIG_IGN);
    const int null = open("/dev/null", O_RDWR);
    for (const int standard : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) dup2(null, standard);
    if (null > STDERR_FILENO) close(null);
    prctl(PR_SET_NAME, "dptk-run-guard");
}

/// Reads process ids of ranks to watch (positive) and to forget (negative) until dptk-run has ended. Then
/// kills the process groups of the watched ranks, and removes `directory`.
void guard(int pipe, const char* directory) {
    std::set<pid_t> ranks;
    pid_t rank = 0;
    while (read(pipe, &rank, sizeof rank) == static_cast<ssize_t>(sizeof rank)) {
        if (rank > 0) {
            ranks.insert(rank);
        } else {
            ranks.erase(-rank);
        }
    }
    for (const pid_t watched : ranks) kill(-watched, SIGKILL);
    dptk::detail::remove_directory(directory);
}

}  // namespace

Guard::Guard(const std::string& directory) {
    std::array<int, 2> ends{};
    if (pipe2(ends.data(), O_CLOEXEC) != 0) throw dptk::BackendError("cannot open a pipe for the guard");
    process_ = fork();
    if (process_ < 0) throw dptk::BackendError("cannot start the guard process");
    if (process_ == 0) {
        close(ends[1]);
        detach_from_terminal();
        guard(ends[0], directory.c_str());
        _exit(0);
    }
    close(ends[0]);
    pipe_ = ends[1];
}

Guard::~Guard() {
    kill(process_, SIGKILL);
    waitpid(process_, nullptr, 0);
    close(pipe_);
}

void Guard::watch(pid_t rank) {
    static_cast<void>(write(pipe_, &rank, sizeof rank));
}

void Guard::forget(pid_t rank) {
    watch(-rank);
}

}  // namespace run
