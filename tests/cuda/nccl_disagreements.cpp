// docs/errors.md: calls that differ between ranks, over NCCL.
#include "support/disagreements.hpp"

#include "machine.hpp"
#include "support/debug_mode.hpp"

TEST_CASE("docs/errors.md: calls that differ over NCCL are an agreed error with DPTK_DEBUG=detail") {
    const test::DebugMode debug;
    for (const int ranks : {2, 4}) {
        const test::Machine machine(ranks);
        test::on_devices(ranks, [](dptk::ProcessGroup& threads) {
            dptk::ProcessGroup group = dptk::nccl_communicator(threads);
            for (const test::DisagreementCell& cell :
                 test::disagreement_cells("any, with DPTK_DEBUG=detail")) {
                REQUIRE(cell.expected == "error");
                test::check_is_agreed_error(group, cell);
            }
        });
    }
}
