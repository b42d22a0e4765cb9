// Every verb over NCCL: of device memory and of host memory, blocking and in the background.
#include "machine.hpp"

namespace {

constexpr int rank_counts[] = {1, 2, 4};

}  // namespace

TEST_CASE("every verb of device memory does over NCCL what it does elsewhere") {
    for (const int ranks : rank_counts) {
        const test::Machine machine(ranks);
        test::on_devices(ranks, [](dptk::ProcessGroup& threads) {
            dptk::ProcessGroup group = dptk::nccl_communicator(threads);
            test::CudaMemory memory;
            const test::Terrain terrain{&memory, test::Rounding::on_the_way};
            test::check_reductions_on(group, terrain);
            test::check_weighted_sums_on(group, terrain);
            test::check_moves_on(group, terrain);
        });
    }
}

TEST_CASE("every verb of host memory does over NCCL what it does elsewhere") {
    for (const int ranks : rank_counts) {
        const test::Machine machine(ranks);
        test::on_devices(ranks, [](dptk::ProcessGroup& threads) {
            dptk::ProcessGroup group = dptk::nccl_communicator(threads);
            test::check_verbs_on(group, {nullptr, test::Rounding::on_the_way});
        });
    }
}
