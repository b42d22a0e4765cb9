// Checks the table of docs/collectives.md for NCCL.
#include <map>
#include <set>
#include <string>

#include "machine.hpp"
#include "support/verb_table.hpp"

namespace {

/// Returns how often each NCCL function that transfers elements was called.
std::map<std::string, int> transfers() {
    static const std::set<std::string> all = {"ncclAllReduce", "ncclReduce",        "ncclBroadcast",
                                              "ncclAllGather", "ncclReduceScatter", "ncclSend",
                                              "ncclRecv"};
    std::map<std::string, int> calls;
    for (const cuda_double::Count& count : cuda_double::counts()) {
        if (all.contains(count.place.function)) calls[count.place.function] += count.calls;
    }
    return calls;
}

}  // namespace

TEST_CASE("docs/collectives.md: each verb makes the NCCL calls that it says") {
    for (const test::TableRow& row : test::verb_table()) {
        const test::Machine machine(2);
        std::set<std::string> called;
        test::on_devices(2, [&](dptk::ProcessGroup& threads) {
            dptk::ProcessGroup group = dptk::nccl_communicator(threads);
            threads.barrier();
            const std::map<std::string, int> before = transfers();
            threads.barrier();
            test::make_call(group, row[0]);
            threads.barrier();
            if (threads.rank() != 0) return;
            for (const auto& [function, calls] : transfers()) {
                if (!before.contains(function) || before.at(function) != calls) called.insert(function);
            }
        });
        const std::vector<std::string> said = test::words_with(row[5].substr(0, row[5].find(';')), "nccl");
        CHECK_MESSAGE(called == std::set<std::string>(said.begin(), said.end()), row[0]);
    }
}
