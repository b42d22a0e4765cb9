#include "signals.hpp"

#include <dptk/core/error.hpp>

#include <sys/signalfd.h>
#include <unistd.h>

#include <csignal>

namespace run {

namespace {

bool is_ignored(int signal) {
    struct sigaction action {};
    return sigaction(signal, nullptr, &action) == 0 && action.sa_handler == SIG_IGN;
}

}  // namespace

bool asks_to_end(int signal) {
    return signal == SIGINT || signal == SIGTERM || signal == SIGHUP;
}

Signals::Signals() {
    sigemptyset(&handled_);
    for (const int signal : {SIGCHLD, SIGINT, SIGTERM, SIGUSR1, SIGUSR2}) sigaddset(&handled_, signal);
    if (!is_ignored(SIGHUP)) sigaddset(&handled_, SIGHUP);  // nohup ignores SIGHUP
    ::signal(SIGPIPE, SIG_IGN);
    ::signal(SIGCHLD, SIG_DFL);  // if it were ignored, waitpid() would not report ranks that end
    sigprocmask(SIG_BLOCK, &handled_, &before_);
    descriptor_ = signalfd(-1, &handled_, SFD_NONBLOCK | SFD_CLOEXEC);
    if (descriptor_ < 0) throw dptk::BackendError("cannot create a signalfd");
}

Signals::~Signals() {
    close(descriptor_);
}

std::optional<int> Signals::next() const {
    signalfd_siginfo info{};
    if (read(descriptor_, &info, sizeof info) != static_cast<ssize_t>(sizeof info)) return std::nullopt;
    return static_cast<int>(info.ssi_signo);
}

void Signals::undo() const {
    ::signal(SIGPIPE, SIG_DFL);
    for (const int signal : {SIGINT, SIGTERM, SIGUSR1, SIGUSR2}) ::signal(signal, SIG_DFL);
    sigprocmask(SIG_SETMASK, &before_, nullptr);
}

}  // namespace run
