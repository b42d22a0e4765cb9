// Options of single calls: algorithm and timeout; function objects of the standard library as operations.
#include <doctest/doctest.h>
#include <dptk/comm/thread.hpp>

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "support/ranks.hpp"

using namespace std::chrono_literals;

namespace {

using dptk::ProcessGroup;
using dptk::ReduceOp;

/// Returns the operation that dptk makes of a function on elements of type T, or none if it calls the
/// function.
template <class T, class F>
std::string operation_of(F function) {
    const dptk::ReduceOperation<T> operation(function);
    return operation.function() ? "none" : std::string(dptk::reduce_op_name(operation.reduction().op));
}

}  // namespace

TEST_CASE(
    "an all_reduce with an algorithm of its own gives the sum, and leaves the group's algorithm as it is") {
    test::on_ranks([](ProcessGroup& group) {
        using dptk::AllReduceAlgorithm;
        std::vector<std::int64_t> expected(1000);
        for (std::size_t i = 0; i < expected.size(); ++i)
            expected[i] = static_cast<std::int64_t>(i) * group.size() + group.size() * (group.size() - 1) / 2;
        for (const AllReduceAlgorithm algorithm :
             {AllReduceAlgorithm::automatic, AllReduceAlgorithm::ring, AllReduceAlgorithm::tree,
              AllReduceAlgorithm::recursive_doubling, AllReduceAlgorithm::slices}) {
            std::vector<std::int64_t> data(1000), other(1000);
            for (std::size_t i = 0; i < data.size(); ++i)
                data[i] = static_cast<std::int64_t>(i) + group.rank();
            other = data;
            group.all_reduce(data, {.algorithm = algorithm});
            CHECK(data == expected);
            group.all_reduce_async(other, ReduceOp::sum, {.algorithm = algorithm}).wait();
            CHECK(other == expected);
        }
    });
}

TEST_CASE("calls with a timeout of their own end in time, and those without have the group's") {
    const auto run = [](const auto& wait) {
        std::string texts[2];
        const auto begin = std::chrono::steady_clock::now();
        try {
            dptk::launch_threads(2, [&](ProcessGroup& group) {
                std::string& text = texts[group.rank()];
                if (group.rank() == 0) {
                    CHECK(test::throws<dptk::TimeoutError>(text, [&] { wait(group); }));
                } else {
                    std::this_thread::sleep_for(1500ms);
                    CHECK(test::throws<dptk::Error>(text, [&] { group.barrier(); }));
                }
            });
        } catch (const dptk::Error&) {  // the ranks have noted the errors
        }
        CHECK(std::chrono::steady_clock::now() - begin < 20s);
        CHECK_MESSAGE(test::contains(texts[0], "within 200 ms"), texts[0]);
        CHECK_MESSAGE(test::contains(texts[1], "within 200 ms"), texts[1]);
    };
    run([](ProcessGroup& group) {
        std::vector<float> data(5);
        group.all_reduce(data, {.timeout = 200ms});
    });
    run([](ProcessGroup& group) {
        std::vector<float> data(5);
        static_cast<void>(group.recv(data, 1, 0, {.timeout = 200ms}));
    });
    run([](ProcessGroup& group) {
        std::vector<float> data(5);
        group.broadcast_async(data, 1, {.timeout = 200ms}).wait();
    });
    run([](ProcessGroup& group) {
        std::vector<float> data(5);
        group.recv_async(data, 1, 0, {.timeout = 200ms}).wait();
    });
    dptk::launch_threads(2, [](ProcessGroup& group) {
        std::vector<float> data(5);
        group.barrier();  // both threads have started
        group.all_reduce(data, {.timeout = 2s});
        if (group.rank() == 1) std::this_thread::sleep_for(3s);
        CHECK_NOTHROW(group.all_reduce(data));
    });
}

TEST_CASE(
    "function objects of the standard library are built-in operations where their results are the same") {
    CHECK(operation_of<float>(std::plus<>()) == "sum");
    CHECK(operation_of<std::int8_t>(std::plus<std::int8_t>()) == "sum");
    CHECK(operation_of<double>(std::multiplies<>()) == "product");
    CHECK(operation_of<std::uint32_t>(std::bit_and<>()) == "band");
    CHECK(operation_of<std::uint32_t>(std::bit_or<>()) == "bor");
    CHECK(operation_of<std::uint32_t>(std::bit_xor<>()) == "bxor");
    CHECK(operation_of<float>(std::plus<double>()) == "none");  // rounds in another type
    CHECK(operation_of<bool>(std::plus<>()) == "none");
    CHECK(operation_of<float>(std::minus<>()) == "none");
    CHECK(operation_of<float>([](float a, float b) { return a + b; }) == "none");
    test::on_ranks([](ProcessGroup& group) {
        std::vector<int> data = {1, group.rank()};
        group.all_reduce(data, std::plus<>());
        CHECK(data == std::vector{group.size(), group.size() * (group.size() - 1) / 2});
    });
}
