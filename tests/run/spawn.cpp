#include <doctest/doctest.h>
#include <dptk/comm/spawn.hpp>
#include <dptk/core/log.hpp>

#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>

namespace {

using dptk::detail::SpawnedRanks;

std::string error_of_spawn(int size, void (*fn)(dptk::ProcessGroup&)) {
    try {
        dptk::spawn(size, fn);
    } catch (const dptk::Error& error) {
        return error.what();
    }
    return "";
}

/// Returns the text that `fn`, in any process, writes to the file whose path it receives.
template <class Fn>
std::string written_by(Fn&& fn) {
    const dptk::detail::TemporaryDirectory folder("dptk-test");
    const std::string path = folder.path() + "/text";
    fn(path);
    std::string text(4096, '\0');
    std::FILE* const file = std::fopen(path.c_str(), "r");
    REQUIRE(file != nullptr);
    text.resize(std::fread(text.data(), 1, text.size(), file));
    std::fclose(file);
    return text;
}

void append(const std::string& path, const std::string& line) {
    std::FILE* const file = std::fopen(path.c_str(), "a");
    std::fputs(line.c_str(), file);
    std::fclose(file);
}

bool has_children() {
    return waitpid(-1, nullptr, WNOHANG) >= 0 || errno != ECHILD;
}

}  // namespace

TEST_CASE("a spawned rank is a separate process with a process group") {
    const std::string text = written_by([](const std::string& path) {
        dptk::spawn(1, [&, parent = getpid()](dptk::ProcessGroup& group) {
            const bool other = getpid() != parent && getpgrp() == getpid();
            append(path, dptk::detail::text(group.size(), other ? " other " : " same ", std::getenv("RANK"),
                                            std::getenv("MASTER_ADDR")));
        });
    });
    CHECK(text == "1 other 0127.0.0.1");
    CHECK_FALSE(has_children());
}

TEST_CASE("an exception on a spawned rank is reported with its text") {
    const std::string error =
        error_of_spawn(1, [](dptk::ProcessGroup&) { throw std::runtime_error("no such weights"); });
    CHECK(error == "spawn: rank 0 failed first: exit status 1: no such weights");
    CHECK_FALSE(has_children());
}

TEST_CASE("a spawned rank that is killed is reported with the signal") {
    CHECK(error_of_spawn(1, [](dptk::ProcessGroup&) { raise(SIGKILL); }) ==
          "spawn: rank 0 failed first: killed by SIGKILL (9)");
    CHECK(error_of_spawn(1, [](dptk::ProcessGroup&) { std::_Exit(4); }) ==
          "spawn: rank 0 failed first: exit status 4");
}

TEST_CASE("spawning ranks without a transport is an error") {
    const std::string error = error_of_spawn(2, [](dptk::ProcessGroup&) {});
    CHECK(error.find("no transport in this program supports that launcher") != std::string::npos);
}

TEST_CASE("a spawned rank does not run the static destructors of its parent") {
    const std::string text = written_by([](const std::string& path) {
        static std::string file;
        file = path;
        struct AtEnd {
            ~AtEnd() { append(file, "static "); }
        };
        static const AtEnd at_end;
        dptk::spawn(1, [&](dptk::ProcessGroup&) { append(path, "rank "); });
        append(path, "parent");
        file = "/dev/null";
    });
    CHECK(text == "rank parent");
}

TEST_CASE("buffered output is written once") {
    const std::string text = written_by([](const std::string& path) {
        std::FILE* const file = std::fopen(path.c_str(), "w");
        std::fputs("before ", file);
        dptk::spawn(1, [&](dptk::ProcessGroup&) { std::fputs("rank ", file); });
        std::fputs("after", file);
        std::fclose(file);
    });
    CHECK(text == "before rank after");
}

TEST_CASE("spawn rejects 0 ranks, and programs with threads") {
    CHECK_THROWS_WITH_AS(dptk::spawn(0, [](dptk::ProcessGroup&) {}),
                         "spawn with 0 ranks: expected at least 1", dptk::ArgumentError);
    std::mutex mutex;
    std::unique_lock lock(mutex);
    const std::jthread thread([&] { const std::lock_guard wait(mutex); });
    CHECK_THROWS_WITH_AS(dptk::spawn(1, [](dptk::ProcessGroup&) {}),
                         doctest::Contains(" threads cannot be forked"), dptk::ArgumentError);
    lock.unlock();
}

// The next tests use SpawnedRanks directly, since spawn would first connect the ranks with
// init_process_group.
TEST_CASE("when one of several spawned ranks fails, the others are ended") {
    const auto begin = std::chrono::steady_clock::now();
    setenv("DPTK_SHUTDOWN_TIMEOUT", "0.2", 1);
    std::string log;
    dptk::set_log_sink([&](dptk::LogLevel, int, std::string_view line) { log += line; });
    SpawnedRanks ranks(4, [](int rank) -> int {
        std::signal(SIGTERM, rank == 2 ? SIG_IGN : SIG_DFL);  // not doctest's handler
        if (rank == 1) return 3;
        while (true) pause();
    });
    const auto failure = ranks.wait();
    REQUIRE(failure);
    CHECK(failure->headline == "rank 1 failed first: exit status 3");
    CHECK(std::chrono::steady_clock::now() - begin < std::chrono::seconds(20));
    dptk::set_log_sink(nullptr);
    unsetenv("DPTK_SHUTDOWN_TIMEOUT");
    CHECK(log == "spawn: killed rank 2: still running 200 ms after SIGTERM (DPTK_SHUTDOWN_TIMEOUT)");
    CHECK_FALSE(has_children());
}

TEST_CASE("a stopped rank is named when the other ranks report it as lost") {
    int stopping[2];
    REQUIRE(pipe(stopping) == 0);
    SpawnedRanks ranks(2, [&](int rank) -> int {
        std::signal(SIGTERM, SIG_DFL);
        char byte = 0;
        if (rank == 1) {
            static_cast<void>(write(stopping[1], &byte, 1));
            raise(SIGSTOP);
        }
        static_cast<void>(read(stopping[0], &byte, 1));
        std::this_thread::sleep_for(std::chrono::milliseconds(300));
        dptk::detail::write_failure_report(std::getenv("DPTK_ERROR_FILE"),
                                           {dptk::detail::FailureKind::consequence, "rank 1 is silent"});
        return 1;
    });
    const auto failure = ranks.wait();
    for (const int end : stopping) close(end);
    REQUIRE(failure);
    CHECK(failure->headline == "rank 1 is stopped (SIGSTOP); the other ranks reported: rank 1 is silent");
    CHECK_FALSE(has_children());
}
