// Every verb over NCCL: on device memory and on host memory, blocking and in the background.
#include "machine.hpp"

namespace {

constexpr int rank_counts[] = {1, 2, 4};

}  // namespace

TEST_CASE("every verb on device memory gives the same results over NCCL as over other transports") {
    for (const int ranks : rank_counts) {
        const test::Machine machine(ranks);
        test::on_devices(ranks, [](dptk::ProcessGroup& threads) {
            dptk::ProcessGroup group = dptk::nccl_communicator(threads);
            test::CudaMemory memory;
            const test::VerbSuiteOptions options{&memory, test::Rounding::on_the_way};
            test::check_reductions_on(group, options);
            test::check_weighted_sums_on(group, options);
            test::check_moves_on(group, options);
        });
    }
}

TEST_CASE("every verb on host memory gives the same results over NCCL as over other transports") {
    for (const int ranks : rank_counts) {
        const test::Machine machine(ranks);
        test::on_devices(ranks, [](dptk::ProcessGroup& threads) {
            dptk::ProcessGroup group = dptk::nccl_communicator(threads);
            test::check_verbs_on(group, {nullptr, test::Rounding::on_the_way});
        });
    }
}
