#include <doctest/doctest.h>
#include <dptk/ddp.hpp>

#include <chrono>
#include <vector>

TEST_CASE("a group of one has everything done already") {
    dptk::SelfCommunicator self(dptk::SelfTransport{});
    std::vector<float> data = {1, 2};
    self.all_reduce(data, dptk::ReduceOp::avg);
    self.broadcast(data);
    CHECK(data == std::vector<float>{1, 2});
    CHECK(self.all_gather_value(7) == std::vector<int>{7});
    self.barrier();
    auto copy = self.duplicate();
    auto work = copy.all_reduce_async(data);
    work.wait();
    dptk::ProcessGroup group = std::move(self);
    CHECK(group.size() == 1);
    CHECK(group.backend() == "self");
}

TEST_CASE("threads inherit the timeout of a group of one") {
    const dptk::InitOptions options{.rank = 0, .world_size = 1, .timeout = std::chrono::seconds(7)};
    dptk::ProcessGroup processes = dptk::init_process_group(options);
    dptk::launch_threads(processes, 2, [](dptk::ProcessGroup& group) {
        CHECK(group.size() == 2);
        CHECK(group.backend() == "threads");
        CHECK(group.engine().identity().timeout == std::chrono::seconds(7));
    });
}

TEST_CASE("there is nobody to talk to in a group of one") {
    dptk::SelfTransport self;
    CHECK_THROWS_AS(self.send({}, 0, 0), dptk::ArgumentError);
    CHECK_THROWS_AS(self.recv({}, 1, 0), dptk::ArgumentError);
}
