// Collectives on memory that the group has allocated and that the ranks of one host share.
#include <doctest/doctest.h>

#include "support/ranks.hpp"
#include "support/verb_suite.hpp"

TEST_CASE("verbs work in memory that the group has allocated") {
    test::on_ranks(test::check_allocated_memory);
}
