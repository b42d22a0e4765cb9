// Every verb works over a transport that has only send and recv.
#include <doctest/doctest.h>
#include <vector>

#include "support/messages_only.hpp"
#include "support/verb_suite.hpp"

namespace {

template <class Fn>
void on_messages(Fn&& fn) {
    for (int size = 1; size <= 9; ++size) {
        const dptk::detail::ThreadJob job(size, {});
        dptk::launch_threads(size, [&](const dptk::ProcessGroup& threads) {
            dptk::ProcessGroup group = dptk::BasicCommunicator(test::MessagesOnly(job, threads.rank()));
            fn(group);
        });
    }
}

}  // namespace

TEST_CASE("send and recv alone make every verb, at 1 to 9 ranks") {
    on_messages(test::check_verbs);
}

TEST_CASE("all algorithms for all_reduce give the same") {
    on_messages([](dptk::ProcessGroup& group) {
        using enum dptk::AllReduceAlgorithm;
        for (const auto algorithm : {automatic, ring, tree, recursive_doubling, recursive_halving, slices}) {
            group.set_all_reduce_algorithm(algorithm);
            for (const std::size_t count : {1U, 5U, 1000U, 100'000U}) {
                std::vector<double> data(count, 1.0 * group.rank());
                group.all_reduce(data, dptk::ReduceOp::avg);
                CHECK(data == std::vector<double>(count, (group.size() - 1) / 2.0));
            }
            std::vector<dptk::bfloat16> halves(10, dptk::bfloat16(group.rank() == 0 ? 256.0F : 1.0F));
            group.all_reduce(halves);
            CHECK(halves[9] == dptk::bfloat16(255.0F + static_cast<float>(group.size())));
        }
    });
}

TEST_CASE("large buffers are sent and reduced in segments") {
    on_messages([](dptk::ProcessGroup& group) {
        const int size = group.size();
        const auto ranks = static_cast<std::size_t>(size);
        const float sum = static_cast<float>(size * (size + 1)) / 2;
        const auto own = static_cast<float>(group.rank() + 1);
        for (const std::size_t count : {70'000U, 300'007U}) {  // elements of each rank
            for (const int root : {0, size - 1}) {
                std::vector<float> data(count * ranks, own);
                data.back() += 1;
                group.reduce(data, root);
                CHECK(data.front() == (group.rank() == root ? sum : own));
                CHECK(data[data.size() / 2] == data.front());
                CHECK(data.back() == data.front() + (group.rank() == root ? static_cast<float>(size) : 1.0F));
                group.broadcast(data, root);
                data.back() -= static_cast<float>(size);
                CHECK(data == std::vector<float>(data.size(), sum));
            }
            const std::vector<float> input(count * ranks, own);
            std::vector<float> output(count);
            group.reduce_scatter(input, output);
            CHECK(output == std::vector<float>(count, sum));
            CHECK(input == std::vector<float>(count * ranks, own));
        }
    });
}

TEST_CASE("a transport without duplicate says so") {
    on_messages([](dptk::ProcessGroup& group) {
        CHECK_THROWS_WITH_AS(static_cast<void>(group.duplicate()),
                             "the transport messages has no duplicate()", dptk::ArgumentError);
    });
}
