// Every verb, over threads and over MPI, against results computed here.
#include <doctest/doctest.h>

#include <array>
#include <cmath>
#include <cstring>
#include <functional>
#include <numeric>
#include <vector>

#include "support/ranks.hpp"

namespace {

/// Rank `rank`'s element `i`: small, so that products stay exact.
template <class T>
T element(int rank, std::size_t i) {
    if constexpr (std::same_as<T, bool>) return (static_cast<std::size_t>(rank) + i) % 3 == 0;
    return static_cast<T>(1 + (static_cast<std::size_t>(rank) * 2 + i) % 3);
}

template <class T>
T expected(dptk::ReduceOp op, int ranks, std::size_t i) {
    T result = element<T>(0, i);
    for (int rank = 1; rank < ranks; ++rank) {
        const T next = element<T>(rank, i);
        switch (op) {
            case dptk::ReduceOp::sum:
            case dptk::ReduceOp::avg: result = static_cast<T>(result + next); break;
            case dptk::ReduceOp::product: result = static_cast<T>(result * next); break;
            case dptk::ReduceOp::min: result = std::min(result, next); break;
            case dptk::ReduceOp::max: result = std::max(result, next); break;
            default:
                if constexpr (!std::is_floating_point_v<T>) {
                    if (op == dptk::ReduceOp::band) result = static_cast<T>(result & next);
                    if (op == dptk::ReduceOp::bor) result = static_cast<T>(result | next);
                    if (op == dptk::ReduceOp::bxor) result = static_cast<T>(result ^ next);
                }
        }
    }
    if (op == dptk::ReduceOp::avg) result = static_cast<T>(result / static_cast<T>(ranks));
    return result;
}

template <class T>
void check_all_reduce(dptk::ProcessGroup& group, dptk::ReduceOp op, std::size_t count) {
    std::unique_ptr<T[]> data(new T[count + 1]);
    for (std::size_t i = 0; i < count; ++i) data[i] = element<T>(group.rank(), i);
    group.all_reduce(std::span(data.get(), count), op);
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < count; ++i) wrong += data[i] != expected<T>(op, group.size(), i);
    CHECK_MESSAGE(wrong == 0, dptk::dtype_name(dptk::dtype_of<T>), " ", dptk::reduce_op_name(op));
}

constexpr std::array all_ops = {dptk::ReduceOp::sum, dptk::ReduceOp::avg, dptk::ReduceOp::product,
                                dptk::ReduceOp::min, dptk::ReduceOp::max, dptk::ReduceOp::band,
                                dptk::ReduceOp::bor, dptk::ReduceOp::bxor};

}  // namespace

TEST_CASE("all_reduce combines every dtype by every operation that has a meaning, and refuses the others") {
    test::on_ranks([](dptk::ProcessGroup& group) {
        for (int dtype = 0; dtype <= static_cast<int>(dptk::DType::f64); ++dtype) {
            dptk::visit_dtype(static_cast<dptk::DType>(dtype), [&](auto zero) {
                using T = decltype(zero);
                for (const dptk::ReduceOp op : all_ops) {
                    const bool bitwise =
                        op == dptk::ReduceOp::band || op == dptk::ReduceOp::bor || op == dptk::ReduceOp::bxor;
                    const bool extreme = op == dptk::ReduceOp::min || op == dptk::ReduceOp::max;
                    const bool meaningful = std::is_floating_point_v<T> ? !bitwise
                                            : std::same_as<T, bool>     ? bitwise || extreme
                                                                        : op != dptk::ReduceOp::avg;
                    if (meaningful) {
                        for (const std::size_t count : {0U, 1U, 7U, 1000U})
                            check_all_reduce<T>(group, op, count);
                    } else {
                        T value{};
                        CHECK_THROWS_AS(group.all_reduce(std::span<T>(&value, 1), op), dptk::ArgumentError);
                    }
                }
            });
        }
    });
}

TEST_CASE("signed integers order and wrap as they should") {
    test::on_ranks([](dptk::ProcessGroup& group) {
        const std::int32_t sign = group.rank() == 0 ? -5 : 5;
        CHECK(group.all_reduce_value(sign, dptk::ReduceOp::min) == -5);
        CHECK(group.all_reduce_value<std::int64_t>(-3, dptk::ReduceOp::sum) == -3 * group.size());
        CHECK(group.all_reduce_value<std::uint8_t>(128, dptk::ReduceOp::sum) ==
              static_cast<std::uint8_t>(128 * group.size()));
    });
}

TEST_CASE("every rank gets the same bits from a sum of floats") {
    test::on_ranks([](dptk::ProcessGroup& group) {
        std::vector<float> data(10007);
        for (std::size_t i = 0; i < data.size(); ++i) {
            data[i] = std::sin(static_cast<float>(i * 7 + static_cast<std::size_t>(group.rank()) * 13));
        }
        group.all_reduce(data, dptk::ReduceOp::avg);
        std::uint64_t hash = 0;
        for (const float value : data) {
            std::uint32_t bits = 0;
            std::memcpy(&bits, &value, sizeof bits);
            hash = hash * 31 + bits;
        }
        for (const std::uint64_t other : group.all_gather_value(hash)) CHECK(other == hash);
    });
}

TEST_CASE("broadcast sends each root's elements to all") {
    test::on_ranks([](dptk::ProcessGroup& group) {
        for (int root = 0; root < group.size(); ++root) {
            std::vector<std::int16_t> data(300, static_cast<std::int16_t>(group.rank()));
            group.broadcast(data, root);
            CHECK(data == std::vector<std::int16_t>(300, static_cast<std::int16_t>(root)));
        }
        std::vector<float> nothing;
        group.broadcast(nothing, 0);
        CHECK_THROWS_AS(group.broadcast(nothing, group.size()), dptk::ArgumentError);
        CHECK_THROWS_AS(group.broadcast(nothing, -1), dptk::ArgumentError);
    });
}

TEST_CASE("all_gather puts the inputs of all ranks in rank order, in place or not") {
    test::on_ranks([](dptk::ProcessGroup& group) {
        const auto size = static_cast<std::size_t>(group.size());
        const std::vector<double> input = {group.rank() + 0.5, group.rank() + 0.25};
        std::vector<double> output(2 * size);
        group.all_gather(input, output);
        for (std::size_t rank = 0; rank < size; ++rank) {
            CHECK(output[2 * rank] == static_cast<double>(rank) + 0.5);
            CHECK(output[2 * rank + 1] == static_cast<double>(rank) + 0.25);
        }
        std::vector<double> again(2 * size);
        const auto own = std::span(again).subspan(2 * static_cast<std::size_t>(group.rank()), 2);
        std::ranges::copy(input, own.begin());
        group.all_gather(own, again);
        CHECK(again == output);
        CHECK_THROWS_AS(group.all_gather(input, std::span(output).first(2 * size - 1)), dptk::ArgumentError);
    });
}

TEST_CASE("sixteen operations can be under way at once, and wait in any order") {
    test::on_ranks([](dptk::ProcessGroup& group) {
        std::vector<std::vector<float>> data;
        for (int i = 0; i < 16; ++i) data.emplace_back(1000 * (i % 3), static_cast<float>(i));
        std::vector<dptk::Work> works;
        for (auto& each : data) works.push_back(group.all_reduce_async(each));
        std::ranges::reverse(works);
        for (dptk::Work& work : works) work.wait();
        for (int i = 0; i < 16; ++i) {
            for (const float value : data[static_cast<std::size_t>(i)]) {
                REQUIRE(value == static_cast<float>(i * group.size()));
            }
        }
    });
}

TEST_CASE("started and blocking calls keep their order on the same memory") {
    test::on_ranks([](dptk::ProcessGroup& group) {
        const int size = group.size();
        std::vector<std::int64_t> data(100, 1);
        auto first = group.all_reduce_async(data);
        auto second = group.all_reduce_async(data);
        group.all_reduce(data);
        CHECK(data.front() == static_cast<std::int64_t>(size) * size * size);
        second.wait();
        CHECK(first.wait(std::chrono::seconds(10)));
        CHECK(first.done());
        CHECK(first.error() == nullptr);
    });
}

TEST_CASE("a dropped Work is complete after a barrier") {
    test::on_ranks([](dptk::ProcessGroup& group) {
        std::vector<std::int32_t> data(1000, 1);
        std::vector<std::int32_t> gathered(static_cast<std::size_t>(group.size()));
        const std::int32_t own = group.rank();
        std::int32_t root = group.rank();
        static_cast<void>(group.all_reduce_async(data));
        static_cast<void>(group.broadcast_async(std::span(&root, 1), group.size() - 1));
        static_cast<void>(group.all_gather_async(std::span(&own, 1), gathered));
        group.barrier();
        CHECK(data == std::vector<std::int32_t>(1000, group.size()));
        CHECK(root == group.size() - 1);
        for (int rank = 0; rank < group.size(); ++rank)
            CHECK(gathered[static_cast<std::size_t>(rank)] == rank);
        group.barrier_async().wait();
    });
}

TEST_CASE("calls on a duplicate never meet those on the group") {
    test::on_ranks([](dptk::ProcessGroup& group) {
        dptk::ProcessGroup other = group.duplicate();
        std::vector<float> slow(100000, 1);
        dptk::Work work = other.all_reduce_async(slow);
        CHECK(group.all_reduce_value(2) == 2 * group.size());
        work.wait();
        CHECK(slow.back() == static_cast<float>(group.size()));
        CHECK(other.rank() == group.rank());
        CHECK(other.size() == group.size());
        CHECK(other.backend() == group.backend());
    });
}

TEST_CASE("allocated memory is zero, aligned, and goes into collectives") {
    test::on_ranks([](dptk::ProcessGroup& group) {
        dptk::Allocation<double> memory = group.allocate<double>(1001);
        CHECK(memory.size() == 1001);
        CHECK(reinterpret_cast<std::uintptr_t>(memory.data()) % 64 == 0);
        CHECK(std::accumulate(memory.begin(), memory.end(), 0.0) == 0.0);
        memory[1000] = 1;
        group.all_reduce(memory);
        CHECK(memory[1000] == group.size());
        CHECK(group.allocate<float>(0).size() == 0);
        dptk::Work work;
        {
            dptk::Allocation<double> gone_early = group.allocate<double>(100000);
            work = group.all_reduce_async(gone_early);
        }
        work.wait();
    });
}

TEST_CASE("elements need not be aligned") {
    test::on_ranks([](dptk::ProcessGroup& group) {
        alignas(8) std::array<char, 8 * 10 + 1> memory{};
        char* odd = memory.data() + 1;
        for (int i = 0; i < 10; ++i) {
            const double value = i + group.rank();
            std::memcpy(odd + 8 * i, &value, 8);
        }
        const dptk::Buffer buffer{odd, 10, dptk::DType::f64, {}};
        group.channel().run({dptk::Verb::all_reduce, buffer, buffer, dptk::ReduceOp::max, 0});
        for (int i = 0; i < 10; ++i) {
            double value = 0;
            std::memcpy(&value, odd + 8 * i, 8);
            CHECK(value == i + group.size() - 1);
        }
    });
}

TEST_CASE("a group knows who shares its host") {
    test::on_ranks([](dptk::ProcessGroup& group) {
        CHECK(group.local_size() == group.size());  // all tests run on one host
        CHECK(group.local_rank() == group.rank());
    });
}

TEST_CASE("groups come and go") {
    test::on_ranks([](dptk::ProcessGroup& group) {
        for (int i = 0; i < 50; ++i) {
            dptk::ProcessGroup other = group.duplicate();
            CHECK(other.all_reduce_value(1) == group.size());
        }
    });
}
