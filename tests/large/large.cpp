// More elements than 31 bits can count: all_reduce, broadcast and a message of 2^31 + 5 bytes between two
// ranks.
#include <doctest/doctest.h>
#include <dptk/ddp.hpp>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <vector>

namespace {

constexpr std::size_t count = (std::size_t{1} << 31) + 5;

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

TEST_CASE("2^31 + 5 bytes are reduced, broadcast and sent") {
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
