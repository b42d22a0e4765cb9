// Point-to-point messages over NCCL: messages that are started one after the other run concurrently.
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "machine.hpp"
#include "support/ranks.hpp"

namespace {

using dptk::ProcessGroup;
using namespace std::chrono_literals;

constexpr std::size_t count = 1000;

dptk::cuda::DeviceBuffer<float> filled(float value, dptk::StreamRef stream) {
    return dptk::cuda::to_device(std::vector<float>(count, value), stream);
}

float last_of(dptk::cuda::DeviceBuffer<float>& data, dptk::StreamRef stream) {
    return dptk::cuda::to_host(data.span(), stream)[count - 1];
}

}  // namespace

TEST_CASE("ranks that start to send to each other before they receive do not wait for ever") {
    const test::Machine machine(4);
    test::on_devices(4, [](ProcessGroup& threads) {
        ProcessGroup group = dptk::nccl_communicator(threads);
        dptk::cuda::Stream stream;
        std::vector<dptk::cuda::DeviceBuffer<float>> sent;
        std::vector<dptk::cuda::DeviceBuffer<float>> received;
        std::vector<dptk::Work> works;
        for (int other = 0; other < group.size(); ++other) {
            sent.push_back(filled(static_cast<float>(10 * group.rank() + other), stream));
            received.push_back(filled(-1, stream));
        }
        for (int other = 0; other < group.size(); ++other) {
            if (other == group.rank()) continue;
            const auto index = static_cast<std::size_t>(other);
            works.push_back(group.send_async(sent[index], other, 0, {.stream = stream}));
            works.push_back(group.recv_async(received[index], other, 0, {.stream = stream}));
            CHECK(works.back().source_rank() == other);
        }
        for (dptk::Work& work : works) work.wait(stream);
        for (int other = 0; other < group.size(); ++other) {
            if (other == group.rank()) continue;
            CHECK(last_of(received[static_cast<std::size_t>(other)], stream) ==
                  static_cast<float>(10 * other + group.rank()));
        }
    });
}

TEST_CASE("a message that was started is launched with the next one, or before the next collective") {
    const test::Machine machine(2);
    test::on_devices(2, [](ProcessGroup& threads) {
        ProcessGroup group = dptk::nccl_communicator(threads);
        dptk::cuda::Stream stream;
        const int other = 1 - group.rank();
        auto sent = filled(static_cast<float>(group.rank()), stream);
        auto received = filled(-1, stream);
        dptk::Work receiving = group.recv_async(received, other, 0, {.stream = stream});
        group.send(sent, other, 0, {.stream = stream});
        receiving.wait();
        CHECK(last_of(received, stream) == static_cast<float>(other));

        group.send_async(sent, other, 0, {.stream = stream}).detach();
        received = filled(-1, stream);
        dptk::Work again = group.recv_async(received, other, 0, {.stream = stream});
        auto other_data = filled(1, stream);
        group.all_reduce(other_data, dptk::ReduceOp::sum, {.stream = stream});
        CHECK(again.wait(10s));
        CHECK(last_of(received, stream) == static_cast<float>(other));
    });
}

TEST_CASE("messages send what the stream has written before they were started") {
    const test::Machine machine(2);
    test::on_devices(2, [](ProcessGroup& threads) {
        ProcessGroup group = dptk::nccl_communicator(threads);
        dptk::cuda::Stream stream;
        auto data = filled(1, stream);
        if (group.rank() == 0) {
            auto later = filled(7, stream);
            dptk::cuda::copy_on_device(later.span(), data.span(), stream);
            group.send_async(data, 1, 0, {.stream = stream}).wait(stream);
            group.barrier();
        } else {
            dptk::Work work = group.recv_async(data, 0, 0, {.stream = stream});
            group.barrier();
            work.wait(stream);
            CHECK(last_of(data, stream) == 7.0F);
        }
    });
}

TEST_CASE("messages of host memory, started at once") {
    const test::Machine machine(2);
    test::on_devices(2, [](ProcessGroup& threads) {
        ProcessGroup group = dptk::nccl_communicator(threads);
        const int other = 1 - group.rank();
        const std::vector<int> sent(count, group.rank());
        std::vector<int> received(count, -1);
        dptk::Work sending = group.send_async(sent, other);
        dptk::Work receiving = group.recv_async(received, other);
        sending.wait();
        CHECK(receiving.done());
        CHECK(received == std::vector<int>(count, other));
    });
}

TEST_CASE("the timeout of a message starts when it is launched") {
    const test::Machine machine(2);
    test::on_devices(2,
                     [](ProcessGroup& threads) {
                         ProcessGroup group = dptk::nccl_communicator(threads);
                         dptk::cuda::Stream stream;
                         auto data = filled(static_cast<float>(group.rank()), stream);
                         dptk::Work work = group.rank() == 0
                                               ? group.send_async(data, 1, 0, {.stream = stream})
                                               : group.recv_async(data, 0, 0, {.stream = stream});
                         std::this_thread::sleep_for(900ms);  // the program computes
                         work.wait();
                         CHECK(last_of(data, stream) == 0.0F);
                     },
                     {.timeout = 500ms});
}

TEST_CASE("a group launches messages of device memory before it waits on the host") {
    const test::Machine machine(2);
    test::on_devices(2, [](ProcessGroup& group) {
        dptk::cuda::Stream stream;
        auto data = filled(static_cast<float>(group.rank()), stream);
        group.broadcast(data, 0, {.stream = stream});
        dptk::Work sending;
        if (group.rank() == 0) sending = group.send_async(data, 1, 0, {.stream = stream});
        if (group.rank() == 1) group.recv(data, 0, 0, {.stream = stream});
        CHECK(group.all_reduce_value(1) == 2);
        sending.wait();
    });
}

TEST_CASE("a message that is not received is an error at the timeout") {
    const test::Machine machine(2);
    dptk::set_log_sink([](dptk::LogLevel, int, std::string_view) {});
    std::string text;
    try {
        test::on_devices(2,
                         [&](ProcessGroup& threads) {
                             ProcessGroup group = dptk::nccl_communicator(threads);
                             auto data = filled(1, {});
                             if (threads.rank() == 0) group.send_async(data, 1).wait();
                             std::this_thread::sleep_for(1s);
                             threads.barrier();
                         },
                         {.timeout = 500ms});
    } catch (const dptk::TimeoutError& error) {
        text = error.what();
    }
    dptk::set_log_sink({});
    CHECK(test::contains(text, "rank 0: send(1000 x f32, to rank 1) has not completed within 500 ms"));
}
