// docs/errors.md: what happens if the calls of the ranks differ.
#include "support/disagreements.hpp"

#include <doctest/doctest.h>

#include <cstdlib>
#include <string_view>

#include "support/debug_mode.hpp"
#include "support/ranks.hpp"

namespace {

void check_column(std::string_view column) {
    int checked = 0;  // by rank 0
    test::on_ranks([&](dptk::ProcessGroup& group) {
        if (group.size() == 1 || group.local_size() != group.size()) return;
        for (const test::DisagreementCell& cell : test::disagreement_cells(column)) {
            REQUIRE(cell.expected == "error");
            test::check_is_agreed_error(group, cell);
            if (group.rank() == 0) ++checked;
        }
    });
    if (!test::is_launched()) CHECK(checked > 0);
}

}  // namespace

TEST_CASE("docs/errors.md: calls that differ between threads, or ranks that share memory") {
    const char* setting = std::getenv("DPTK_SHM");
    if (setting != nullptr && std::string_view(setting) == "0") return;
    check_column(test::is_launched() ? "shared memory" : "threads");
}

TEST_CASE("docs/errors.md: calls that differ, with DPTK_DEBUG=detail") {
    const test::DebugMode debug;
    check_column("any, with DPTK_DEBUG=detail");
}
