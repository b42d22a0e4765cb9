// Several devices in each process: over NCCL, with one NCCL rank per device, and staged through the host.
#include <dptk/comm/coalesced.hpp>
#include <dptk/comm/multi_device.hpp>

#include <cstdlib>
#include <string>
#include <vector>

#include "machine.hpp"
#include "support/ranks.hpp"

namespace {

namespace multi = dptk::multi_device;
using dptk::ProcessGroup;
using dptk::ReduceOp;

/// One buffer and one stream on each device of a rank.
struct Devices {
    Devices(int rank, int count) {
        for (int i = 0; i < count; ++i) {
            const dptk::cuda::DeviceScope on(rank * count + i);
            streams.emplace_back();
            refs.emplace_back(streams.back());
        }
    }

    /// Creates buffers in which element e of device d (counted over all ranks) is f(d, e).
    template <class F>
    auto make(int rank, std::size_t elements, F f) {
        using T = decltype(f(std::size_t{0}, std::size_t{0}));
        std::vector<dptk::cuda::DeviceBuffer<T>> buffers;
        for (std::size_t i = 0; i < streams.size(); ++i) {
            const std::size_t number = static_cast<std::size_t>(rank) * streams.size() + i;
            const dptk::cuda::DeviceScope on(static_cast<int>(number));
            std::vector<T> values;
            for (std::size_t e = 0; e < elements; ++e) values.push_back(f(number, e));
            buffers.push_back(dptk::cuda::to_device(values, streams[i]));
        }
        return buffers;
    }

    template <class T>
    std::vector<T> read(std::vector<dptk::cuda::DeviceBuffer<T>>& buffers, std::size_t i) {
        return dptk::cuda::to_host(buffers[i].span(), streams[i]);
    }

    std::vector<dptk::cuda::Stream> streams;
    std::vector<dptk::StreamRef> refs;
};

void check_all_verbs(ProcessGroup& group, int count) {
    const int rank = group.rank();
    const auto all = static_cast<std::size_t>(count * group.size());
    Devices devices(rank, count);
    const auto value = [](std::size_t d, std::size_t e) { return static_cast<float>(d + 1 + e % 5); };
    const float numbers = static_cast<float>(all * (all + 1)) / 2;

    auto data = devices.make(rank, 1000, value);
    multi::all_reduce(group, data, ReduceOp::sum, devices.refs);
    for (std::size_t i = 0; i < data.size(); ++i)
        CHECK(devices.read(data, i)[7] == numbers + 2.0F * static_cast<float>(all));

    auto reduced = devices.make(rank, 10, value);
    multi::reduce(group, reduced, group.size() - 1, count - 1, ReduceOp::max, devices.refs);
    for (std::size_t i = 0; i < reduced.size(); ++i) {
        const std::size_t number = static_cast<std::size_t>(rank * count) + i;
        CHECK(devices.read(reduced, i)[0] ==
              (number == all - 1 ? static_cast<float>(all) : value(number, 0)));
    }

    auto sent = devices.make(rank, 10, value);
    multi::broadcast(group, sent, 0, count - 1, devices.refs);
    for (std::size_t i = 0; i < sent.size(); ++i)
        CHECK(devices.read(sent, i)[1] == static_cast<float>(count + 1));

    auto part = devices.make(rank, 3, value);
    auto whole = devices.make(rank, 3 * all, [](std::size_t, std::size_t) { return 0.0F; });
    multi::all_gather(group, part, whole, devices.refs);
    for (std::size_t i = 0; i < whole.size(); ++i)
        CHECK(devices.read(whole, i)[3 * (all - 1) + 2] == value(all - 1, 2));

    auto in_place =
        devices.make(rank, 3 * all, [&](std::size_t d, std::size_t e) { return value(d, e % 3); });
    std::vector<dptk::DeviceSpan<float>> places;
    for (std::size_t i = 0; i < in_place.size(); ++i) {
        const std::size_t number = static_cast<std::size_t>(rank * count) + i;
        places.push_back(in_place[i].span().subspan(3 * number, 3));
    }
    multi::all_gather(group, places, in_place, devices.refs);
    for (std::size_t i = 0; i < in_place.size(); ++i) {
        CHECK(devices.read(in_place, i)[2] == value(0, 2));
        CHECK(devices.read(in_place, i)[3 * (all - 1) + 2] == value(all - 1, 2));
    }

    multi::reduce_scatter(group, whole, part, ReduceOp::avg, devices.refs);
    for (std::size_t i = 0; i < part.size(); ++i)
        CHECK(devices.read(part, i)[2] ==
              doctest::Approx(value(static_cast<std::size_t>(rank * count) + i, 2)));

    auto bits = devices.make(rank, 10, [](std::size_t d, std::size_t) { return static_cast<int>(1U << d); });
    multi::all_reduce(group, bits, ReduceOp::bor, devices.refs);
    for (std::size_t i = 0; i < bits.size(); ++i) CHECK(devices.read(bits, i)[9] == (1 << all) - 1);
    group.barrier();
}

}  // namespace

TEST_CASE("several devices in each process, over NCCL and through the host") {
    for (const char* backend : {"nccl", "staged"}) {
        ::setenv("DPTK_DEVICE_BACKEND", backend, 1);
        for (const int ranks : {1, 2}) {
            for (const int count : {1, 2, 3}) {
                const test::Machine machine(ranks * count);
                dptk::launch_threads(ranks, [&](ProcessGroup& group) { check_all_verbs(group, count); });
            }
        }
        ::unsetenv("DPTK_DEVICE_BACKEND");
    }
}

TEST_CASE("invalid buffers are refused on all ranks") {
    const test::Machine machine(2);
    dptk::launch_threads(1, [](ProcessGroup& group) {
        std::vector<dptk::cuda::DeviceBuffer<float>> twice;
        twice.emplace_back(10);
        twice.emplace_back(10);
        std::string text;
        CHECK(test::throws<dptk::ArgumentError>(
            text, [&] { multi::all_reduce(group, twice); }, test::Agreed::yes));
        CHECK(test::contains(text, "devices 0 and 1 are both cuda:0"));
        const std::vector<dptk::StreamRef> streams(3);
        CHECK(test::throws<dptk::ArgumentError>(
            text, [&] { multi::all_reduce(group, twice, ReduceOp::sum, streams); }, test::Agreed::yes));
        CHECK(test::contains(text, "3 streams for 2 devices"));
    });
}

TEST_CASE("it is an error of all ranks if only some of them have already connected their devices") {
    const test::Machine machine(4);
    dptk::launch_threads(2, [](ProcessGroup& group) {
        Devices devices(group.rank(), 2);
        auto data = devices.make(group.rank(), 10, [](std::size_t, std::size_t) { return 1.0F; });
        multi::all_reduce(group, data, ReduceOp::sum, devices.refs);
        if (group.rank() == 1) {
            std::swap(data[0], data[1]);
            std::swap(devices.refs[0], devices.refs[1]);
        }
        std::string text;
        CHECK(test::throws<dptk::MismatchError>(
            text, [&] { multi::all_reduce(group, data, ReduceOp::sum, devices.refs); }, test::Agreed::yes));
        CHECK(test::contains(text, "the first over these devices"));
        group.barrier();
    });
}

TEST_CASE("an NCCL call that fails on one of several devices ends all ranks") {
    for (const char* function :
         {"ncclCommInitRankConfig", "ncclAllReduce", "ncclGroupEnd", "ncclCommFinalize"}) {
        const test::Machine machine(4);
        dptk::set_log_sink([](dptk::LogLevel, int, std::string_view) {});
        const auto ones = [](std::size_t, std::size_t) { return 1.0F; };
        cuda_double::fail({function, 3}, 1, ncclSystemError);
        CHECK_THROWS_AS(dptk::launch_threads(2,
                                             [&](ProcessGroup& group) {
                                                 dptk::cuda::set_device(2 * group.rank() + 1);
                                                 {
                                                     ProcessGroup copy = group.duplicate();
                                                     Devices devices(group.rank(), 2);
                                                     auto data = devices.make(group.rank(), 10, ones);
                                                     multi::all_reduce(copy, data, ReduceOp::sum,
                                                                       devices.refs);
                                                     copy.barrier();
                                                 }
                                                 group.barrier();
                                             }),
                        dptk::Error);
        dptk::set_log_sink({});
    }
}

TEST_CASE("lists of buffers in device memory") {
    const test::Machine machine(2);
    test::on_devices(2, [](ProcessGroup& group) {
        dptk::cuda::Stream stream;
        std::vector<dptk::cuda::DeviceBuffer<float>> buffers;
        for (const std::size_t size : {10U, 20U})
            buffers.push_back(dptk::cuda::to_device(std::vector<float>(size, 1), stream));
        group.all_reduce_coalesced(buffers, ReduceOp::sum, {.stream = stream});
        group.all_reduce_coalesced_async(buffers, dptk::WeightedSum{0.25}, {.stream = stream}).wait();
        CHECK(dptk::cuda::to_host(buffers[1].span(), stream) == std::vector<float>(20, 1));
    });
}
