// A transport of nothing but send and recv gets every verb.
#include <doctest/doctest.h>
#include <vector>

#include "support/messages_only.hpp"

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

static_assert(dptk::Transport<test::MessagesOnly>);

TEST_CASE("send and recv alone make all_reduce, broadcast, all_gather and barrier, at 1 to 9 ranks") {
    on_messages([](dptk::ProcessGroup& group) {
        std::vector<double> data = {1.0 * group.rank(), 2.0};
        group.all_reduce(data, dptk::ReduceOp::avg);
        CHECK(data == std::vector<double>{(group.size() - 1) / 2.0, 2.0});

        for (int root = 0; root < group.size(); ++root) {
            std::vector<int> values(5, group.rank());
            group.broadcast(values, root);
            CHECK(values == std::vector<int>(5, root));
        }
        const std::vector<int> ranks = group.all_gather_value(group.rank());
        for (int rank = 0; rank < group.size(); ++rank) CHECK(ranks[static_cast<std::size_t>(rank)] == rank);
        group.barrier();
        auto work = group.all_reduce_async(data, dptk::ReduceOp::sum);
        work.wait();
        CHECK(data[1] == 2.0 * group.size());
    });
}

TEST_CASE("a transport without duplicate says so") {
    on_messages([](dptk::ProcessGroup& group) {
        CHECK_THROWS_WITH_AS(static_cast<void>(group.duplicate()),
                             "the transport messages has no duplicate()", dptk::ArgumentError);
    });
}
