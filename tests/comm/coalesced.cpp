// Coalesced collectives give the same results as one call per buffer.
#include <doctest/doctest.h>
#include <dptk/comm/coalesced.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <ranges>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "support/ranks.hpp"

namespace {

using dptk::ReduceOp;

template <class T>
using Lists = std::vector<std::vector<T>>;

struct Particle {
    double mass;
    std::int16_t place;

    friend bool operator==(const Particle&, const Particle&) = default;
};

/// Returns buffers of 0 to 6 times `factor` elements, not sorted by size. The elements differ between ranks.
template <class T>
Lists<T> given(int rank, std::size_t factor = 1) {
    Lists<T> lists;
    for (const std::size_t size : {3U, 0U, 6U, 1U, 0U}) {
        std::vector<T>& list = lists.emplace_back(size * factor);
        for (std::size_t i = 0; i < list.size(); ++i)
            list[i] = static_cast<T>((static_cast<std::size_t>(rank) * 2 + i + size) % 5);
    }
    return lists;
}

static_assert(dptk::MutableBufferList<Lists<float>&>);
static_assert(dptk::BufferList<const Lists<float>&>);
static_assert(!dptk::MutableBufferList<const Lists<float>&>);
static_assert(!dptk::BufferList<std::vector<float>&>);

constexpr auto copy_of = [](const std::vector<float>& list) { return list; };
constexpr auto view_of = [](const std::vector<float>& list) { return std::span(list); };
static_assert(!dptk::BufferList<decltype(std::views::transform(std::declval<Lists<float>&>(), copy_of))>);
static_assert(dptk::BufferList<decltype(std::views::transform(std::declval<Lists<float>&>(), view_of))>);

static_assert(dptk::BufferListOutlivesCall<Lists<float>&>);
static_assert(!dptk::BufferListOutlivesCall<Lists<float>>);
static_assert(dptk::BufferListOutlivesCall<std::vector<std::span<float>>>);
static_assert(dptk::BufferListOutlivesCall<std::tuple<std::vector<float>&, std::span<int>>>);
static_assert(!dptk::BufferListOutlivesCall<std::tuple<std::vector<float>>>);

}  // namespace

TEST_CASE("all_reduce_coalesced gives what a call for each buffer gives") {
    test::on_ranks([](dptk::ProcessGroup& group) {
        for (const ReduceOp op : {ReduceOp::sum, ReduceOp::product, ReduceOp::min, ReduceOp::bxor}) {
            auto together = given<std::int32_t>(group.rank());
            auto started = together;
            auto apart = together;
            group.all_reduce_coalesced(together, op);
            group.all_reduce_coalesced_async(started, op).wait();
            for (auto& list : apart) group.all_reduce(list, op);
            CHECK(together == apart);
            CHECK(started == apart);
        }
        auto together = given<float>(group.rank());
        auto apart = together;
        group.all_reduce_coalesced(together, ReduceOp::avg);
        for (auto& list : apart) group.all_reduce(list, ReduceOp::avg);
        CHECK(together == apart);
    });
}

TEST_CASE("a tuple of buffers may have several types") {
    test::on_ranks([](dptk::ProcessGroup& group) {
        const int size = group.size();
        std::vector<float> weights(5, 0.5F);
        std::array<std::int64_t, 2> counts = {group.rank(), 1};
        std::vector<double> nothing;
        std::vector<float> more(3, 2.0F);
        double loss = 3;
        group.all_reduce_coalesced(std::tie(weights, counts, nothing, more));
        CHECK(weights == std::vector<float>(5, 0.5F * static_cast<float>(size)));
        CHECK(counts == std::array<std::int64_t, 2>{size * (size - 1) / 2, size});
        CHECK(more == std::vector<float>(3, 2.0F * static_cast<float>(size)));
        auto work = group.all_reduce_coalesced_async(std::tuple(std::span(&loss, 1), std::span(counts)),
                                                     ReduceOp::max);
        work.wait();
        CHECK(loss == 3);
        CHECK(counts[1] == size);
    });
}

TEST_CASE("functions of the user's combine the elements in rank order") {
    test::on_ranks([](dptk::ProcessGroup& group) {
        const auto last = [](const Particle&, const Particle& b) { return b; };
        const Particle own{0.5 * group.rank(), static_cast<std::int16_t>(group.rank())};
        const Particle expected{0.5 * (group.size() - 1), static_cast<std::int16_t>(group.size() - 1)};
        Lists<Particle> lists = {{own, own}, {}, {own}};
        group.all_reduce_coalesced_async(lists, last).wait();
        CHECK(lists == Lists<Particle>{{expected, expected}, {}, {expected}});
    });
}

TEST_CASE("every rank gets the same bits from sums of many buffers of floats") {
    test::on_ranks([](dptk::ProcessGroup& group) {
        Lists<float> lists;
        for (std::size_t size = 0; size < 300; ++size) {
            lists.emplace_back(size);
            for (std::size_t i = 0; i < size; ++i)
                lists.back()[i] =
                    std::sin(static_cast<float>(i * 7 + size + static_cast<std::size_t>(group.rank()) * 13));
        }
        group.all_reduce_coalesced(lists);
        for (const auto& list : lists) {
            std::vector<float> highest = list;
            std::vector<float> lowest = list;
            group.all_reduce(highest, ReduceOp::max);
            group.all_reduce(lowest, ReduceOp::min);
            CHECK(highest == lowest);
        }
    });
}

TEST_CASE("broadcast_coalesced sends each root's buffers, of any types, to all") {
    test::on_ranks([](dptk::ProcessGroup& group) {
        for (int root = 0; root < group.size(); ++root) {
            std::vector<Particle> particles(3, Particle{1.5 * group.rank(), 7});
            auto flags = std::make_unique<bool[]>(2);
            flags[1] = group.rank() % 2 == 1;
            auto lists = given<std::int16_t>(group.rank());
            const auto buffers =
                std::tuple(std::span(particles), std::span(flags.get(), 2), std::span(lists[2]));
            group.broadcast_coalesced(buffers, root);
            group.broadcast_coalesced_async(std::span(lists), root).wait();
            CHECK(particles == std::vector<Particle>(3, Particle{1.5 * root, 7}));
            CHECK(flags[1] == (root % 2 == 1));
            CHECK(lists == given<std::int16_t>(root));
        }
    });
}

TEST_CASE("all_gather_coalesced and reduce_scatter_coalesced give what a call for each buffer gives") {
    test::on_ranks([](dptk::ProcessGroup& group) {
        const auto size = static_cast<std::size_t>(group.size());
        const auto parts = given<std::int32_t>(group.rank());
        const auto wholes = given<std::int32_t>(group.rank(), size);
        auto gathered = given<std::int32_t>(0, size);
        auto gathered_later = gathered;
        auto scattered = given<std::int32_t>(0);
        auto scattered_later = scattered;
        group.all_gather_coalesced(parts, gathered);
        auto gathering = group.all_gather_coalesced_async(parts, gathered_later);
        group.reduce_scatter_coalesced(wholes, scattered);
        auto scattering = group.reduce_scatter_coalesced_async(wholes, scattered_later, ReduceOp::max);
        gathering.wait();
        scattering.wait();
        for (std::size_t i = 0; i < parts.size(); ++i) {
            auto expected = std::vector<std::int32_t>(wholes[i].size());
            auto part = std::vector<std::int32_t>(parts[i].size());
            group.all_gather(parts[i], expected);
            CHECK(gathered[i] == expected);
            CHECK(gathered_later[i] == expected);
            group.reduce_scatter(wholes[i], part);
            CHECK(scattered[i] == part);
            group.reduce_scatter(wholes[i], part, ReduceOp::max);
            CHECK(scattered_later[i] == part);
        }
    });
}

TEST_CASE("no buffers are no call") {
    test::on_ranks([](dptk::ProcessGroup& group) {
        Lists<float> none;
        group.all_reduce_coalesced(none);
        group.broadcast_coalesced(std::tie());
        CHECK(group.all_gather_coalesced_async(none, none).done());
        if (group.rank() == 0) group.all_reduce_coalesced(none);  // communicates nothing
        group.barrier();
    });
}

TEST_CASE("several started lists can be under way, be waited for in any order, and be dropped") {
    test::on_ranks([](dptk::ProcessGroup& group) {
        const auto size = static_cast<float>(group.size());
        std::vector<Lists<float>> all(8, Lists<float>(20, std::vector<float>(50, 1)));
        std::vector<std::vector<std::int32_t>> counts(8, std::vector<std::int32_t>(5, 1));
        std::vector<dptk::Work> works;
        for (std::size_t i = 0; i < 6; ++i)
            works.push_back(group.all_reduce_coalesced_async(std::tie(all[i][0], counts[i], all[i][19])));
        for (std::size_t i = 6; i < 8; ++i) group.all_reduce_coalesced_async(all[i]).detach();
        CHECK(works[5].wait(std::chrono::minutes(1)));
        CHECK(works[5].done());
        CHECK(works[5].error() == nullptr);
        for (dptk::Work& work : works) work.wait();
        group.barrier();
        for (std::size_t i = 0; i < 6; ++i) {
            CHECK(all[i][0].back() == size);
            CHECK(all[i][1].back() == 1);
            CHECK(all[i][19].front() == size);
            CHECK(counts[i].back() == group.size());
        }
        for (std::size_t i = 6; i < 8; ++i) CHECK(all[i] == Lists<float>(20, std::vector<float>(50, size)));
    });
}

TEST_CASE("started lists keep allocated memory, and functions, alive") {
    test::on_ranks([](dptk::ProcessGroup& group) {
        dptk::Work work;
        {
            std::vector<dptk::Allocation<double>> memory;
            for (int i = 0; i < 3; ++i) memory.push_back(group.allocate<double>(10000));
            const std::vector<double> weights(100, 2);
            work = group.all_reduce_coalesced_async(
                memory, [weights](double a, double b) { return weights[3] * a + b; });
        }
        work.wait();
        CHECK(work.done());
    });
}

TEST_CASE("lists that do not fit are refused before anything is sent") {
    test::on_ranks([](dptk::ProcessGroup& group) {
        const auto size = static_cast<std::size_t>(group.size());
        auto lists = given<float>(group.rank());
        auto fewer = lists;
        fewer.pop_back();
        std::vector<double> doubles(size);
        std::vector<float> floats(1);
        std::vector<int> flags(3, group.rank());
        const auto refused = [&](std::string_view part, auto&& fn) {
            std::string text;
            return test::throws<dptk::ArgumentError>(text, fn) && test::contains(text, part);
        };
        CHECK(refused("expected 5 output buffers, got 4", [&] { group.all_gather_coalesced(lists, fewer); }));
        CHECK(
            refused("buffer 0: input of 1 x f32 does not match output of " + std::to_string(size) + " x f64",
                    [&] { group.all_gather_coalesced(std::tie(floats), std::tie(doubles)); }));
        std::vector<float> too_many(size + 1);
        CHECK(refused("buffer 0: input of", [&] {
            static_cast<void>(group.reduce_scatter_coalesced_async(std::tie(too_many), std::tie(floats)));
        }));
        CHECK(refused("ReduceOp::avg is not defined for i32",
                      [&] { group.all_reduce_coalesced(std::tie(floats, flags), ReduceOp::avg); }));
        CHECK(refused("coalesced broadcast: root ", [&] { group.broadcast_coalesced(lists, group.size()); }));
        CHECK(lists == given<float>(group.rank()));
        CHECK(group.all_reduce_value(1) == group.size());
    });
}

TEST_CASE("an error in one of several calls comes out of their Work") {
    if (test::is_launched()) return;  // only thread ranks always compare their calls
    dptk::launch_threads(2, [](dptk::ProcessGroup& group) {
        std::vector<float> floats(3);
        std::vector<int> ints(group.rank() == 0 ? 2 : 5);
        auto work = group.all_reduce_coalesced_async(std::tie(floats, ints));
        CHECK_THROWS_AS(work.wait(), dptk::MismatchError);
        CHECK(work.done());
        CHECK(work.error() != nullptr);
    });
}
