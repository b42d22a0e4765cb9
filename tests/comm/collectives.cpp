// The typed collectives: order of calls, Work handles, allocated memory, and invalid arguments.
#include <doctest/doctest.h>

#include <array>
#include <cmath>
#include <complex>
#include <cstring>
#include <limits>
#include <numeric>
#include <vector>

#include "support/debug_mode.hpp"
#include "support/ranks.hpp"

TEST_CASE("signed integers order and wrap as they should") {
    test::on_ranks([](dptk::ProcessGroup& group) {
        const std::int32_t sign = group.rank() == 0 ? -5 : 5;
        CHECK(group.all_reduce_value(sign, dptk::ReduceOp::min) == -5);
        CHECK(group.all_reduce_value<std::int64_t>(-3, dptk::ReduceOp::sum) == -3 * group.size());
        const auto check_wrap = [&]<class T>(T largest) {
            for (const std::size_t count : {1U, 100U, 100'000U}) {
                std::vector<T> data(count, largest);
                group.all_reduce(data);
                const auto expected = static_cast<T>(static_cast<std::uint64_t>(largest) *
                                                     static_cast<std::uint64_t>(group.size()));
                CHECK(data == std::vector<T>(count, expected));
            }
        };
        check_wrap(std::numeric_limits<std::int8_t>::max());
        check_wrap(std::numeric_limits<std::uint8_t>::max());
        check_wrap(std::numeric_limits<std::int16_t>::max());
        check_wrap(std::numeric_limits<std::uint16_t>::max());
        check_wrap(std::numeric_limits<std::int32_t>::max());
        check_wrap(std::numeric_limits<std::uint64_t>::max());
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
        group.all_reduce_async(data).detach();
        group.broadcast_async(std::span(&root, 1), group.size() - 1).detach();
        group.all_gather_async(std::span(&own, 1), gathered).detach();
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

TEST_CASE("values of bool are gathered as well") {
    test::on_ranks([](dptk::ProcessGroup& group) {
        std::vector<bool> expected(static_cast<std::size_t>(group.size()), false);
        expected[0] = true;
        CHECK(group.all_gather_value(group.rank() == 0) == expected);
    });
}

TEST_CASE("an average of complex numbers keeps infinity in its own part") {
    test::on_ranks([](dptk::ProcessGroup& group) {
        const float infinity = std::numeric_limits<float>::infinity();
        const std::complex<float> mine(1, group.rank() == 0 ? infinity : 0);
        const std::complex<float> mean = group.all_reduce_value(mine, dptk::ReduceOp::avg);
        CHECK(mean.real() == 1);
        CHECK(mean.imag() == infinity);
    });
}

TEST_CASE("calls that were started hold no messages up") {
    test::on_ranks([](dptk::ProcessGroup& group) {
        if (group.size() == 1) return;
        // Not every transport progresses a bf16 sum in the background; each progresses an f32 sum.
        std::vector<dptk::bfloat16> first(10, dptk::bfloat16(1.0F));
        std::vector<float> second(10, 1.0F);
        std::vector<int> message(3, group.rank());
        std::vector<dptk::Work> works;
        works.push_back(group.all_reduce_async(first));
        if (group.rank() == 1) group.recv(message, 0);
        works.push_back(group.all_reduce_async(second));
        if (group.rank() == 0) group.send(message, 1);
        for (dptk::Work& work : works) work.wait();
        CHECK(first[9] == dptk::bfloat16(static_cast<float>(group.size())));
        CHECK(second[9] == static_cast<float>(group.size()));
        CHECK(message[2] == (group.rank() < 2 ? 0 : group.rank()));
    });
}

TEST_CASE("started calls match each other, whichever rank has waited for the calls before") {
    test::on_ranks([](dptk::ProcessGroup& group) {
        std::vector<float> first(10, 1.0F);
        std::vector<float> second(10, 1.0F);
        dptk::Work reduced = group.reduce_async(first, 0);
        if (group.rank() == 0) reduced.wait();
        dptk::Work summed = group.all_reduce_async(second);
        reduced.wait();
        summed.wait();
        if (group.rank() == 0) CHECK(first[9] == static_cast<float>(group.size()));
        CHECK(second[9] == static_cast<float>(group.size()));
    });
}

TEST_CASE("a call that is carried out later comes after those that work in its memory") {
    test::on_ranks([](dptk::ProcessGroup& group) {
        std::vector<double> other(10, 1.0);
        std::vector<double> data(1000000, 1.0);
        dptk::Work summed = group.all_reduce_async(data);
        dptk::Work reduced = group.reduce_async(other, 0);
        group.reduce_async(data, 0).wait();
        summed.wait();
        reduced.wait();
        if (group.rank() == 0) CHECK(data[999999] == static_cast<double>(group.size() * group.size()));
    });
}

TEST_CASE("messages that were started go on while ranks wait for each other") {
    for (const char* level : {"off", "detail"}) {
        const test::DebugMode debug(level);
        test::on_ranks([](dptk::ProcessGroup& group) {
            if (group.size() == 1 || group.size() > 4) return;
            std::vector<float> message(std::size_t{1} << 22, static_cast<float>(group.rank()));
            dptk::Work sending;
            if (group.rank() == 0) sending = group.send_async(message, 1);
            if (group.rank() == 1) group.recv(message, 0);
            group.monitored_barrier(std::chrono::seconds(30));
            if (group.rank() == 0) sending.wait();
            if (group.rank() == 0) sending = group.send_async(message, 1);
            if (group.rank() == 1) group.recv(message, 0);
            group.barrier();
            if (group.rank() == 0) sending.wait();
            CHECK(message.back() == (group.rank() < 2 ? 0.0F : static_cast<float>(group.rank())));
        });
    }
}

TEST_CASE("a gather of nothing leaves the memory of the other ranks alone") {
    test::on_ranks([](dptk::ProcessGroup& group) {
        std::vector<float> output(group.rank() == 0 ? 0 : 100, 7.0F);
        group.gather(std::vector<float>{}, output, 0);
        CHECK(output == std::vector<float>(group.rank() == 0 ? 0 : 100, 7.0F));
    });
}

TEST_CASE("a barrier throws no error of a Work that is kept") {
    const test::DebugMode debug;
    test::on_ranks([](dptk::ProcessGroup& group) {
        if (group.size() == 1) return;
        std::vector<float> data(group.rank() == 0 ? 4 : 5);
        dptk::Work work = group.all_reduce_async(data);
        std::string text;
        if (group.rank() == 0)
            CHECK(test::throws<dptk::MismatchError>(
                text, [&] { work.wait(); }, test::Agreed::yes));
        CHECK_NOTHROW(group.barrier());
        if (group.rank() != 0)
            CHECK(test::throws<dptk::MismatchError>(
                text, [&] { work.wait(); }, test::Agreed::yes));
    });
}

TEST_CASE("a group that closes completes calls and messages that wait for each other") {
    test::on_ranks([](dptk::ProcessGroup& group) {
        if (group.size() == 1) return;
        std::vector<dptk::bfloat16> data(10, dptk::bfloat16(1.0F));
        std::vector<int> message(3, 7);
        {
            dptk::ProcessGroup copy = group.duplicate();
            if (group.rank() == 0) {
                message.assign(3, -1);
                copy.recv_async(message, 1).detach();
                copy.all_reduce_async(data).detach();
            } else {
                copy.all_reduce(data);
                if (group.rank() == 1) copy.send(message, 0);
            }
        }
        CHECK(message[2] == 7);
        CHECK(data[9] == dptk::bfloat16(static_cast<float>(group.size())));
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
