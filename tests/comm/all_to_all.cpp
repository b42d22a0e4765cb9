// all_to_all with different counts for each pair of ranks.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

#include "support/ranks.hpp"
#include "support/uneven_lists.hpp"

namespace {

using dptk::ProcessGroup;

}  // namespace

TEST_CASE("all_to_all sends each rank as many elements as the counts say, also none, and in the background") {
    test::on_ranks([](ProcessGroup& group) {
        std::vector<double> sent, expected;
        std::vector<std::size_t> counts, output_counts;
        for (int other = 0; other < group.size(); ++other) {
            const auto out = test::list_of(group.rank(), other, 0),
                       in = test::list_of(other, group.rank(), 0);
            sent.insert(sent.end(), out.begin(), out.end());
            expected.insert(expected.end(), in.begin(), in.end());
            counts.push_back(out.size());
            output_counts.push_back(in.size());
        }
        std::vector<double> received(expected.size());
        group.all_to_all(sent, received, counts, output_counts);
        CHECK(received == expected);
        std::ranges::fill(received, -1);
        group.all_to_all_async(sent, received, counts, output_counts).wait();
        CHECK(received == expected);
        const std::vector<std::size_t> none(counts.size(), 0);
        group.all_to_all(std::vector<double>(), std::vector<double>(), none, none);
    });
}

TEST_CASE("counts that do not match the buffers are an error") {
    test::on_ranks([](ProcessGroup& group) {
        const auto ranks = static_cast<std::size_t>(group.size());
        std::vector<float> in(2 * ranks), out(2 * ranks);
        std::vector<std::size_t> counts(ranks, 2), more(ranks, 3), few(ranks - 1, 2);
        CHECK_THROWS_WITH_AS(group.all_to_all(in, out, more, counts),
                             doctest::Contains("all_to_all_uneven: the input has"), dptk::ArgumentError);
        CHECK_THROWS_WITH_AS(group.all_to_all(in, out, counts, more),
                             doctest::Contains("all_to_all_uneven: the output has"), dptk::ArgumentError);
        CHECK_THROWS_WITH_AS(group.all_to_all(in, out, few, counts), doctest::Contains("one for each rank"),
                             dptk::ArgumentError);
        if (group.size() == 1 || test::is_launched()) return;
        // Rank 0 sends one element more to rank 1 than rank 1 expects.
        if (group.rank() == 0) in.resize(in.size() + 1);
        if (group.rank() == 0) ++counts[1];
        std::string text;
        CHECK(test::throws<dptk::MismatchError>(
            text, [&] { group.all_to_all(in, out, counts, std::vector<std::size_t>(ranks, 2)); },
            test::Agreed::yes));
        CHECK(test::contains(text, "rank 0 sends 3 elements to rank 1, which expects 2"));
    });
}
