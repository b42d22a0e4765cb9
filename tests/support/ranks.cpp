#include "support/ranks.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <vector>

#if defined(__SANITIZE_ADDRESS__)  // GCC
#define DPTK_TEST_HAS_ASAN
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)  // Clang
#define DPTK_TEST_HAS_ASAN
#endif
#endif

namespace test {

namespace {

void on_groups(dptk::ProcessGroup& world, const std::function<void(dptk::ProcessGroup&)>& fn) {
    std::vector<int> ranks(static_cast<std::size_t>(world.size()));
    std::iota(ranks.begin(), ranks.end(), 0);
    for (int size = 1; size < world.size(); ++size) {
        dptk::ProcessGroup group = world.subgroup(std::span(ranks).first(static_cast<std::size_t>(size)));
        if (group.is_member()) fn(group);
    }
    fn(world);
}

}  // namespace

bool is_launched() {
    return std::getenv("DPTK_TEST_RANKS") != nullptr;
}

void on_ranks(const std::function<void(dptk::ProcessGroup&)>& fn) {
    if (const char* setting = std::getenv("DPTK_TEST_RANKS")) {
        dptk::ProcessGroup world = dptk::init_process_group();
        return std::string_view(setting) == "groups" ? on_groups(world, fn) : fn(world);
    }
    for (const int ranks : {1, 2, 3, 4, 8}) dptk::launch_threads(ranks, fn);
}

int exit_status_of_child(const std::function<int()>& fn) {
    std::fflush(nullptr);
    const pid_t child = fork();
    if (child == 0) {
        alarm(60);
#ifdef DPTK_TEST_HAS_ASAN  // LeakSanitizer does not see what the parent's threads own
        std::_Exit(fn());
#else
        std::exit(fn());
#endif
    }
    int status = 0;
    if (child < 0 || waitpid(child, &status, 0) != child) return -1;
    if (WIFEXITED(status)) return WEXITSTATUS(status);
    std::fprintf(stderr, "the child was ended by signal %d\n", WTERMSIG(status));
    return -1;
}

}  // namespace test
