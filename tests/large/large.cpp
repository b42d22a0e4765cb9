// Tests every verb with buffers, and a message, with more elements than 31 bits can count: at least one
// buffer of each call has more than 2^31 bytes.
#include <doctest/doctest.h>
#include <dptk/ddp.hpp>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <vector>

namespace {

constexpr std::size_t count = (std::size_t{1} << 31) + 7;

std::uint8_t given(int rank, std::size_t i) {
    return static_cast<std::uint8_t>(i * 7 + static_cast<std::size_t>(rank) * 31);
}

/// Where the elements are not expected(i); count where all are.
template <class Expected>
std::size_t first_wrong(const std::vector<std::uint8_t>& data, Expected&& expected) {
    for (std::size_t i = 0; i < data.size(); ++i) {
        if (data[i] != expected(i)) return i;
    }
    return count;
}

void fill(std::vector<std::uint8_t>& data, int rank) {
    for (std::size_t i = 0; i < count; ++i) data[i] = given(rank, i);
}

template <class Fn>
void on_two_ranks(Fn&& fn) {
    if (std::getenv("DPTK_TEST_RANKS") == nullptr) return dptk::launch_threads(2, fn);
    dptk::ProcessGroup group = dptk::init_process_group();
    REQUIRE(group.size() == 2);
    fn(group);
}

}  // namespace

TEST_CASE("2^31 + 7 bytes are reduced, broadcast and sent") {
    on_two_ranks([](dptk::ProcessGroup& group) {
        std::vector<std::uint8_t> data(count);
        fill(data, group.rank());
        group.all_reduce(data);
        CHECK(first_wrong(data, [](std::size_t i) {
                  return static_cast<std::uint8_t>(given(0, i) + given(1, i));
              }) == count);
        fill(data, group.rank());
        group.all_reduce(data, dptk::ReduceOp::max);
        CHECK(first_wrong(data, [](std::size_t i) { return std::max(given(0, i), given(1, i)); }) == count);
        fill(data, group.rank());
        group.reduce(data, 1, dptk::ReduceOp::max);
        CHECK(first_wrong(data, [&](std::size_t i) {
                  return group.rank() == 1 ? std::max(given(0, i), given(1, i)) : given(0, i);
              }) == count);
        fill(data, group.rank());
        group.broadcast(data, 1);
        CHECK(first_wrong(data, [](std::size_t i) { return given(1, i); }) == count);
        fill(data, 0);
        if (group.rank() == 0) group.send(data, 1);
        if (group.rank() == 1) {
            std::fill(data.begin(), data.end(), std::uint8_t{0});
            CHECK(group.recv(data, 0) == 0);
            CHECK(first_wrong(data, [](std::size_t i) { return given(0, i); }) == count);
        }
    });
}

TEST_CASE("more than 2^31 bytes are collected from two ranks, and distributed to them") {
    constexpr std::size_t half = (std::size_t{1} << 30) + 5;
    on_two_ranks([](dptk::ProcessGroup& group) {
        const int rank = group.rank();
        const auto own = static_cast<std::size_t>(rank);
        std::vector<std::uint8_t> whole(2 * half), part(half);
        const auto fill_part = [&] {
            for (std::size_t i = 0; i < part.size(); ++i) part[i] = given(rank, i);
            std::fill(whole.begin(), whole.end(), std::uint8_t{0});
        };
        const auto collected = [&](std::size_t first) {
            return first_wrong(whole,
                               [&](std::size_t i) { return i < first ? given(0, i) : given(1, i - first); });
        };
        const auto fill_whole = [&] {
            for (std::size_t i = 0; i < whole.size(); ++i) whole[i] = given(rank, i);
        };
        fill_part();
        group.all_gather(part, whole);
        CHECK(collected(half) == count);
        fill_part();
        group.gather(part, whole, 1);
        if (rank == 1) CHECK(collected(half) == count);
        fill_whole();
        group.scatter(whole, part, 1);
        CHECK(first_wrong(part, [&](std::size_t i) { return given(1, own * half + i); }) == count);
        fill_whole();
        group.reduce_scatter(whole, part, dptk::ReduceOp::max);
        CHECK(first_wrong(part, [&](std::size_t i) {
                  return std::max(given(0, own * half + i), given(1, own * half + i));
              }) == count);
        std::vector<std::uint8_t> received(2 * half);
        group.all_to_all(whole, received);
        CHECK(first_wrong(received, [&](std::size_t i) {
                  return i < half ? given(0, own * half + i) : given(1, own * half + i - half);
              }) == count);
        received = {};
        const std::vector<std::size_t> counts{half + 3, half - 3};
        part.resize(counts[own]);
        fill_part();
        group.all_gather(part, whole, counts);
        CHECK(collected(half + 3) == count);
    });
}
