// docs/errors.md: what happens over MPI if the calls of the ranks differ. The arguments are one of:
//
// - list VERB: prints how calls of this verb can differ, and what the table says
// - VERB WAY AFTER: makes such calls, and then ends ("end"), makes barriers ("barriers"), or makes steps for
//   half a minute ("steps")
// - started: starts an all_reduce with different counts, and waits for it
#define DOCTEST_CONFIG_IMPLEMENT
#include "support/disagreements.hpp"

#include <doctest/doctest.h>
#include <dptk/comm/init.hpp>
#include <dptk/comm/mpi.hpp>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace {

[[nodiscard]] std::string word_of(test::Disagreement way) {
    std::string name(name_of(way));
    std::replace(name.begin(), name.end(), ' ', '_');
    return name;
}

void start_differing_calls() {
    dptk::ProcessGroup group = dptk::init_process_group();
    std::vector<float> data(group.rank() == group.size() - 1 ? 4 : 8);
    group.all_reduce_async(data).wait();
    group.barrier();
}

void go_on(dptk::ProcessGroup& group, std::string_view after) {
    using namespace std::chrono_literals;
    if (after == "barriers") {
        group.barrier();
        group.barrier();
    } else if (after == "steps") {
        const auto begin = std::chrono::steady_clock::now();
        std::vector<float> data(8);
        while (std::chrono::steady_clock::now() - begin < 30s) {
            group.all_reduce(data);
            std::this_thread::sleep_for(20ms);
        }
    }
}

}  // namespace

int main(int argc, char** argv) {
    doctest::Context context;
    context.setAsDefaultForAssertsOutOfTestCases();
    const std::vector<std::string> arguments(argv + 1, argv + argc);
    if (arguments.at(0) == "started") {
        start_differing_calls();
        return 0;
    }
    const bool lists = arguments.at(0) == "list";
    for (const test::DisagreementCell& cell : test::disagreement_cells("MPI")) {
        if (dptk::verb_name(cell.verb) != arguments.at(lists ? 1 : 0)) continue;
        if (lists) {
            std::printf("%s %s\n", word_of(cell.kind).c_str(), cell.expected.c_str());
        } else if (word_of(cell.kind) == arguments.at(1)) {
            dptk::ProcessGroup group = dptk::init_process_group();
            make_differing_calls(group, cell.verb, cell.kind);
            go_on(group, arguments.at(2));
        }
    }
    return 0;
}
