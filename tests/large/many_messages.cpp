// Each rank starts 100,000 sends and 100,000 receives, and then waits for them in reverse order.
#include <doctest/doctest.h>
#include <dptk/ddp.hpp>

#include <cstddef>
#include <cstdlib>
#include <span>
#include <vector>

TEST_CASE("100,000 started sends and receives on each rank") {
    constexpr std::size_t count = 100'000;
    const auto exchange = [](dptk::ProcessGroup& group) {
        const int size = group.size();
        const int next = (group.rank() + 1) % size;
        const int previous = (group.rank() + size - 1) % size;
        std::vector<int> sent(count), received(count);
        std::vector<dptk::Work> works;
        for (std::size_t i = 0; i < count; ++i) {
            sent[i] = static_cast<int>(i) * size + group.rank();
            works.push_back(group.recv_async(std::span(&received[i], 1), previous, static_cast<int>(i % 3)));
            works.push_back(group.send_async(std::span(&sent[i], 1), next, static_cast<int>(i % 3)));
        }
        while (!works.empty()) {
            works.back().wait();
            works.pop_back();
        }
        std::size_t wrong = 0;
        for (std::size_t i = 0; i < count; ++i) wrong += received[i] != static_cast<int>(i) * size + previous;
        CHECK(wrong == 0);
        CHECK(group.all_reduce_value(1) == size);
    };
    if (std::getenv("DPTK_TEST_RANKS") == nullptr) return dptk::launch_threads(8, exchange);
    dptk::ProcessGroup group = dptk::init_process_group();
    exchange(group);
}
