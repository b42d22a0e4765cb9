// fork_ranks creates pipes between all pairs of ranks, and then forks the ranks, which inherit the pipes.
#pragma once

#include <dptk/control/process/child_process.hpp>

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstdio>
#include <exception>
#include <system_error>
#include <utility>
#include <vector>

#include "pipe_transport.hpp"

/// Creates two pipes, one per direction, between each pair of `size` ranks. result[a][b] holds rank a's
/// ends of the pipes between a and b. Throws BackendError if the system cannot create a pipe.
inline std::vector<std::vector<PipePair>> make_pipes(std::size_t size) {
    std::vector<std::vector<PipePair>> pipes(size);
    for (auto& of_one_rank : pipes) of_one_rank.resize(size);
    for (std::size_t from = 0; from < size; ++from) {
        for (std::size_t to = 0; to < size; ++to) {
            int ends[2];
            if (from == to) continue;
            if (::pipe2(ends, O_CLOEXEC) != 0)
                throw dptk::BackendError("cannot create a pipe: " + std::system_category().message(errno));
            pipes[to][from].in = PipeEnd(ends[0]);
            pipes[from][to].out = PipeEnd(ends[1]);
        }
    }
    return pipes;
}

/// Runs fn as rank `rank`, and returns the exit status of the rank's process. If fn throws, prints the
/// exception to stderr.
template <class Fn>
int run_rank(int rank, std::vector<PipePair> pairs, Fn& fn) noexcept {
    int status = 1;
    try {
        fn(PipeTransport(rank, std::move(pairs)));
        status = 0;
    } catch (const dptk::Error& error) {
        if (!error.agreed() || rank == 0) std::fprintf(stderr, "%s\n", error.what());
    } catch (const std::exception& error) {
        std::fprintf(stderr, "rank %d: %s\n", rank, error.what());
    } catch (...) {
        std::fprintf(stderr, "rank %d: an exception that is not derived from std::exception\n", rank);
    }
    std::fflush(nullptr);
    return status;
}

/// Forks `size` processes, the ranks, runs fn(PipeTransport) in each, and waits for all of them. Returns how
/// they have ended, in rank order. Must be called before the program starts a thread: a forked process
/// inherits locked mutexes, but not the threads that would unlock them.
template <class Fn>
[[nodiscard]] std::vector<dptk::detail::ChildEnd> fork_ranks(int size, Fn fn) {
    std::fflush(nullptr);  // otherwise each process would write the buffered output
    auto pipes = make_pipes(static_cast<std::size_t>(size));
    std::vector<pid_t> processes;
    for (int rank = 0; rank < size; ++rank) {
        processes.push_back(dptk::detail::fork_rank([&] {
            std::signal(SIGPIPE, SIG_IGN);  // so that write() fails with EPIPE if the reader has exited
            std::vector<PipePair> own = std::move(pipes[static_cast<std::size_t>(rank)]);
            pipes.clear();  // so that a reader sees the end of a pipe when its writer exits
            return run_rank(rank, std::move(own), fn);
        }));
    }
    pipes.clear();

    std::vector<dptk::detail::ChildEnd> ends;
    for (const pid_t process : processes) {
        int status = 0;
        while (::waitpid(process, &status, 0) < 0 && errno == EINTR) {
        }
        ends.emplace_back(status);
    }
    return ends;
}
