// Multi-device collectives, compared with what one process computes.
#include <doctest/doctest.h>
#include <dptk/comm/multi_device.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "support/agreed_errors.hpp"
#include "support/ranks.hpp"

namespace {

namespace multi = dptk::multi_device;
using dptk::ReduceOp;

template <class T>
using Devices = std::vector<std::vector<T>>;

/// Returns element i of the input of device number `number`.
template <class T>
T device_value(std::size_t number, std::size_t i) {
    return static_cast<T>(static_cast<float>(1 + (number * 2 + i) % 3));
}

/// Returns the inputs of the devices of rank `rank`; each rank has `devices` devices.
template <class T>
Devices<T> own(int rank, std::size_t devices, std::size_t count) {
    Devices<T> all(devices, std::vector<T>(count));
    for (std::size_t d = 0; d < devices; ++d) {
        for (std::size_t i = 0; i < count; ++i)
            all[d][i] = device_value<T>(static_cast<std::size_t>(rank) * devices + d, i);
    }
    return all;
}

/// Combines element i of the first `number` devices, in double, which is exact for these inputs.
double combined(ReduceOp op, std::size_t number, std::size_t i) {
    double result = device_value<double>(0, i);
    for (std::size_t n = 1; n < number; ++n) {
        const auto next = device_value<double>(n, i);
        if (op == ReduceOp::sum || op == ReduceOp::avg) result += next;
        if (op == ReduceOp::product) result *= next;
        if (op == ReduceOp::max) result = std::max(result, next);
    }
    return op == ReduceOp::avg ? result / static_cast<double>(number) : result;
}

}  // namespace

TEST_CASE("ones on 8 devices of each rank sum to 8 times the number of ranks, 16 for two, everywhere") {
    test::on_ranks([](dptk::ProcessGroup& group) {
        Devices<float> devices(8, std::vector<float>(100, 1));
        multi::all_reduce(group, devices);
        const auto number = static_cast<float>(8 * group.size());
        CHECK(devices == Devices<float>(8, std::vector<float>(100, number)));
    });
}

TEST_CASE("reductions run over all devices of all ranks, and an average is over all of them") {
    test::on_ranks([](dptk::ProcessGroup& group) {
        const int size = group.size();
        const int rank = group.rank();
        for (const std::size_t devices : {1U, 2U, 3U}) {
            const std::size_t all = devices * static_cast<std::size_t>(size);
            for (const ReduceOp op : {ReduceOp::sum, ReduceOp::avg, ReduceOp::product, ReduceOp::max}) {
                for (const std::size_t count : {0U, 5U, 5000U}) {
                    auto buffers = own<double>(rank, devices, count);
                    std::vector<double> expected(count);
                    for (std::size_t i = 0; i < count; ++i) expected[i] = combined(op, all, i);
                    multi::all_reduce(group, buffers, op);
                    CHECK(buffers == Devices<double>(devices, expected));

                    const int root = size - 1;
                    const auto device = devices - 1;
                    buffers = own<double>(rank, devices, count);
                    multi::reduce(group, buffers, root, static_cast<int>(device), op);
                    auto after = own<double>(rank, devices, count);
                    if (rank == root) after[device] = expected;
                    CHECK(buffers == after);
                }
                const std::size_t count = 7;
                const auto inputs = own<double>(rank, devices, count * all);
                Devices<double> outputs(devices, std::vector<double>(count));
                multi::reduce_scatter(group, inputs, outputs, op);
                CHECK(inputs == own<double>(rank, devices, count * all));
                for (std::size_t d = 0; d < devices; ++d) {
                    const std::size_t first = (static_cast<std::size_t>(rank) * devices + d) * count;
                    for (std::size_t i = 0; i < count; ++i)
                        CHECK(outputs[d][i] == combined(op, all, first + i));
                }
            }
        }
    });
}

TEST_CASE("broadcast sends one device's elements to all devices of all ranks") {
    test::on_ranks([](dptk::ProcessGroup& group) {
        for (int root = 0; root < group.size(); ++root) {
            for (int device = 0; device < 3; ++device) {
                auto buffers = own<std::int16_t>(group.rank(), 3, 20);
                multi::broadcast(group, buffers, root, device);
                const auto expected = own<std::int16_t>(root, 3, 20)[static_cast<std::size_t>(device)];
                CHECK(buffers == Devices<std::int16_t>(3, expected));
            }
        }
    });
}

TEST_CASE("all_gather puts the devices in the order of ranks, and of devices in a rank, in place or not") {
    test::on_ranks([](dptk::ProcessGroup& group) {
        const std::size_t devices = 3;
        const std::size_t count = 4;
        const std::size_t all = devices * static_cast<std::size_t>(group.size());
        std::vector<std::int32_t> expected;
        for (std::size_t number = 0; number < all; ++number) {
            for (std::size_t i = 0; i < count; ++i) expected.push_back(device_value<std::int32_t>(number, i));
        }
        const auto inputs = own<std::int32_t>(group.rank(), devices, count);
        Devices<std::int32_t> outputs(devices, std::vector<std::int32_t>(all * count));
        multi::all_gather(group, inputs, outputs);
        CHECK(outputs == Devices<std::int32_t>(devices, expected));

        Devices<std::int32_t> again(devices, std::vector<std::int32_t>(all * count));
        std::vector<std::span<std::int32_t>> places;
        for (std::size_t d = 0; d < devices; ++d) {
            const std::size_t number = static_cast<std::size_t>(group.rank()) * devices + d;
            places.push_back(std::span(again[d]).subspan(number * count, count));
            std::ranges::copy(inputs[d], places.back().begin());
        }
        multi::all_gather(group, places, again);
        CHECK(again == outputs);
    });
}

TEST_CASE("sums of 16-bit floats are rounded once, over all devices of all ranks") {
    test::on_ranks([](dptk::ProcessGroup& group) {
        const auto check = [&]<class T>(T, float large) {
            // If each addition to a number as large as this one were rounded, none would change it.
            const std::size_t all = 4 * static_cast<std::size_t>(group.size());
            Devices<T> devices(4, std::vector<T>(3, T(1.0F)));
            if (group.rank() == 0) devices[0].assign(3, T(large));
            auto averaged = devices;
            auto reduced = devices;
            Devices<T> parts(4, std::vector<T>(all, T(1.0F)));
            if (group.rank() == 0) parts[0].assign(all, T(large));
            Devices<T> outputs(4, std::vector<T>(1));
            const float sum = large + static_cast<float>(all - 1);
            multi::all_reduce(group, devices);
            multi::all_reduce(group, averaged, ReduceOp::avg);
            multi::reduce(group, reduced, 0, 1);
            multi::reduce_scatter(group, parts, outputs);
            for (const auto& device : devices)
                CHECK(static_cast<float>(device[2]) == static_cast<float>(T(sum)));
            for (const auto& device : averaged)
                CHECK(static_cast<float>(device[2]) == static_cast<float>(T(sum / static_cast<float>(all))));
            if (group.rank() == 0) CHECK(static_cast<float>(reduced[1][0]) == static_cast<float>(T(sum)));
            for (const auto& output : outputs)
                CHECK(static_cast<float>(output[0]) == static_cast<float>(T(sum)));
        };
        check(dptk::float16{}, 2048.0F);
        check(dptk::bfloat16{}, 256.0F);
    });
}

TEST_CASE("a function of the user's combines devices in the order of their numbers") {
    struct Range {
        int first;
        int last;
        int gaps;
    };
    test::on_ranks([](dptk::ProcessGroup& group) {
        Devices<Range> devices;
        for (int d = 0; d < 3; ++d)
            devices.push_back({5, Range{3 * group.rank() + d, 3 * group.rank() + d, 0}});
        multi::all_reduce(group, devices, [](const Range& a, const Range& b) {
            return Range{a.first, b.last, a.gaps + b.gaps + (b.first != a.last + 1)};
        });
        for (const auto& device : devices) {
            CHECK(device[4].first == 0);
            CHECK(device[4].last == 3 * group.size() - 1);
            CHECK(device[4].gaps == 0);
        }
    });
}

TEST_CASE("devices may come as a tuple") {
    test::on_ranks([](dptk::ProcessGroup& group) {
        std::array<float, 2> first = {1, 2};
        std::vector<float> second = {3, 4};
        multi::all_reduce(group, std::tie(first, second));
        CHECK(first[1] == static_cast<float>(6 * group.size()));
        CHECK(second[0] == static_cast<float>(4 * group.size()));
    });
}

TEST_CASE("buffers that do not fit, on all ranks or on one, are an ArgumentError on all") {
    test::on_ranks([](dptk::ProcessGroup& group) {
        const int size = group.size();
        const auto all = static_cast<std::size_t>(2 * size);
        Devices<float> none;
        Devices<float> two(2, std::vector<float>(4));
        Devices<float> unequal = {std::vector<float>(4), std::vector<float>(3)};
        Devices<float> outputs(2, std::vector<float>(4 * all));
        Devices<float> short_outputs(2, std::vector<float>(4 * all - 1));
        Devices<float> one_output(1, std::vector<float>(4 * all));
        Devices<int> ints(2, std::vector<int>(4));
        std::vector<float> floats(4);
        std::vector<double> doubles(4);
        using Error = dptk::ArgumentError;
        CHECK(test::all_throw<Error>(group, "all_reduce: ", [&] { multi::all_reduce(group, none); }));
        CHECK(test::all_throw<Error>(group, "expected at least 1 device, got 0",
                                     [&] { multi::broadcast(group, none); }));
        CHECK(test::all_throw<Error>(group, "device 1 has 3 x f32, but device 0 has 4 x f32",
                                     [&] { multi::all_reduce(group, unequal); }));
        CHECK(test::all_throw<Error>(group, "device 1 has 4 x f64, but device 0 has 4 x f32",
                                     [&] { multi::all_reduce(group, std::tie(floats, doubles)); }));
        CHECK(test::all_throw<Error>(group, "root device 2 is outside [0, 1]",
                                     [&] { multi::reduce(group, two, 0, 2); }));
        CHECK(
            test::all_throw<Error>(group, "root device -1 is", [&] { multi::broadcast(group, two, 0, -1); }));
        CHECK(test::all_throw<Error>(group, "root -1 is outside",
                                     [&] { multi::broadcast(group, two, -1, 0); }));
        CHECK(test::all_throw<Error>(group, "expected one output per input, got 2 inputs and 1 outputs",
                                     [&] { multi::all_gather(group, two, one_output); }));
        CHECK(test::all_throw<Error>(group, "inputs of 4 x f32",
                                     [&] { multi::all_gather(group, two, short_outputs); }));
        CHECK(test::all_throw<Error>(group, "inputs of 4 x f32",
                                     [&] { multi::reduce_scatter(group, two, outputs); }));
        CHECK(test::all_throw<Error>(group, "ReduceOp::avg is not defined for i32",
                                     [&] { multi::all_reduce(group, ints, ReduceOp::avg); }));
        if (size == 1) return;
        auto& odd_one = group.rank() == size - 1 ? unequal : two;
        CHECK(test::all_throw<Error>(group, dptk::detail::text("rank ", size - 1, ": device 1 has 3 x f32"),
                                     [&] { multi::all_reduce(group, odd_one); }));
    });
}

TEST_CASE("calls over devices that differ between ranks are a MismatchError on all") {
    test::on_ranks([](dptk::ProcessGroup& group) {
        if (group.size() == 1) return;
        const bool odd = group.rank() == 1;
        using Error = dptk::MismatchError;
        Devices<float> devices(odd ? 3 : 4, std::vector<float>(6));
        CHECK(test::all_throw<Error>(group, "rank 1 has all_reduce(sum, 6 x f32) with 3 devices",
                                     [&] { multi::all_reduce(group, devices); }));
        CHECK(test::all_throw<Error>(group, "but rank 0 has broadcast(root 0, 6 x f32) with 4 devices",
                                     [&] { multi::broadcast(group, devices); }));
        Devices<float> sizes(2, std::vector<float>(odd ? 3 : 4));
        CHECK(test::all_throw<Error>(group, "rank 1 has", [&] { multi::all_reduce(group, sizes); }));
        Devices<float> same(2, std::vector<float>(4));
        CHECK(test::all_throw<Error>(group, "root device 1",
                                     [&] { multi::reduce(group, same, 0, odd ? 1 : 0); }));
        CHECK(test::all_throw<Error>(group, "root 1", [&] { multi::reduce(group, same, odd ? 1 : 0); }));
        CHECK(test::all_throw<Error>(group, "all_reduce(max", [&] {
            multi::all_reduce(group, same, odd ? ReduceOp::max : ReduceOp::sum);
        }));
    });
}
