// Runs the verb suite over the transport that connects the ranks of this run.
#include <doctest/doctest.h>

#include "support/ranks.hpp"
#include "support/verb_suite.hpp"

TEST_CASE("reductions give what one process computes, with every dtype and operation") {
    test::on_ranks(test::check_reductions);
}

TEST_CASE("elements get to where they shall, with every dtype, and structs as well") {
    test::on_ranks(test::check_moves);
}

TEST_CASE("a NaN of any rank is the result of min and max") {
    test::on_ranks(test::check_nan);
}

TEST_CASE("functions of the user's combine structs and numbers, in rank order") {
    test::on_ranks(test::check_user_functions);
}

TEST_CASE("messages go between all pairs of ranks") {
    test::on_ranks(test::check_messages);
}

TEST_CASE("messages go on by themselves, many at once and beside collectives") {
    test::on_ranks(test::check_messages_in_background);
}

TEST_CASE("many calls at once, and many in a row") {
    test::on_ranks(test::check_many);
}
