#include <doctest/doctest.h>
#include <dptk/ddp.hpp>

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

TEST_CASE("there is nobody to talk to in a group of one") {
    dptk::SelfTransport self;
    CHECK_THROWS_AS(self.send({}, 0, 0), dptk::ArgumentError);
    CHECK_THROWS_AS(self.recv({}, 1, 0), dptk::ArgumentError);
}
