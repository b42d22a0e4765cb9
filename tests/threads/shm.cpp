// The shared-memory transport over thread ranks: every verb, on one simulated host and on several, with
// buffers in shared and in private memory.
#include <doctest/doctest.h>
#include <dptk/comm/shm.hpp>
#include <dptk/comm/thread.hpp>

#include <algorithm>
#include <chrono>
#include <new>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "support/ranks.hpp"
#include "support/ranks_on_hosts.hpp"
#include "support/verb_suite.hpp"

TEST_CASE("every verb where ranks share memory") {
    const std::vector<std::vector<std::string>> places = {
        {"a", "a", "a"}, {"a", "b", "a", "b"}, {"a", "a", "a", "b"}};
    for (const auto& hosts : places) test::launch_on_hosts(hosts, test::check_verbs);
}

TEST_CASE("every verb in memory that is shared, on one host and on several") {
    const std::vector<std::vector<std::string>> places = {{"a"},
                                                          {"a", "a"},
                                                          {"a", "b"},
                                                          {"a", "a", "b", "b"},
                                                          {"a", "b", "b", "b"},
                                                          {"a", "a", "b", "a", "b", "c", "c", "c"}};
    for (const auto& hosts : places) test::launch_on_hosts(hosts, test::check_allocated_memory);
    test::launch_on_hosts({"a", "a", "a"}, test::check_allocated_memory, 3);
    test::launch_on_hosts({"a", "a"}, test::check_allocated_memory, 1);
}

TEST_CASE("several allocations, one after the other, are each shared") {
    test::launch_on_hosts({"a", "a", "a"}, [](dptk::ProcessGroup& group) {
        for (int round = 0; round < 50; ++round) {
            std::vector<dptk::Allocation<float>> buckets;
            for (std::size_t i = 0; i < 5; ++i) buckets.push_back(group.allocate<float>(5000 + i));
            if (round % 2 == 1) buckets.erase(buckets.begin());  // frees memory between two allocations
            for (std::size_t i = 0; i < 3; ++i) buckets.push_back(group.allocate<float>(6000));
            for (std::size_t i = 0; i < buckets.size(); ++i)
                std::ranges::fill(buckets[i], static_cast<float>(i + 1));
            std::size_t wrong = 0;
            for (std::size_t i = 0; i < buckets.size(); ++i) {
                group.all_reduce(buckets[i]);
                wrong += static_cast<std::size_t>(std::ranges::count_if(
                    buckets[i], [&](float value) { return value != static_cast<float>(3 * (i + 1)); }));
            }
            CHECK(wrong == 0);
        }
    });
}

TEST_CASE("few elements, of which some ranks have theirs in shared memory") {
    test::launch_on_hosts(
        {"a", "a", "a"},
        [](dptk::ProcessGroup& group) {
            const dptk::Allocation<float> shared = group.allocate<float>(4000);
            std::vector<float> own(4000);
            for (const std::size_t count : {1U, 500U, 513U, 1024U, 4000U}) {
                const std::span<float> data =
                    (group.rank() == 1 ? shared.span() : std::span(own)).first(count);
                std::ranges::fill(data, static_cast<float>(group.rank()));
                group.all_reduce(data);
                CHECK(std::ranges::count(data, 3.0F) == static_cast<std::ptrdiff_t>(count));
            }
        },
        true);
}

TEST_CASE("more elements than go through shared memory at once") {
    test::launch_on_hosts({"a", "a", "b", "b"}, [](dptk::ProcessGroup& group) {
        const std::size_t count = 1'500'000;
        const dptk::Allocation<float> shared = group.allocate<float>(count);
        std::vector<float> own(count);
        const auto check = [&](std::span<float> data) {
            const auto rank = static_cast<float>(group.rank());
            for (std::size_t i = 0; i < count; ++i) data[i] = rank + static_cast<float>(i % 7);
            group.all_reduce(data);
            std::size_t wrong = 0;
            for (std::size_t i = 0; i < count; ++i)
                wrong += data[i] != 6 + 4 * static_cast<float>(i % 7) ? 1 : 0;
            CHECK(wrong == 0);
            for (std::size_t i = 0; i < count; ++i) data[i] = rank + static_cast<float>(i % 7);
            group.broadcast(data, 2);
            for (std::size_t i = 0; i < count; ++i) wrong += data[i] != 2 + static_cast<float>(i % 7) ? 1 : 0;
            CHECK(wrong == 0);
            group.barrier();
        };
        check(shared.span());
        check(own);
        check(group.rank() < 3 ? std::span(own) : shared.span());
    });
}

TEST_CASE(
    "calls that differ between ranks that share memory are an error of all, and the group stays usable") {
    test::launch_on_hosts({"a", "a", "a"}, [](dptk::ProcessGroup& group) {
        std::vector<float> data(group.rank() == 1 ? 101 : 100, 1.0F);
        std::string text;
        const auto call = [&] { group.all_reduce(data); };
        CHECK(test::throws<dptk::MismatchError>(text, call, test::Agreed::yes));
        CHECK(test::contains(text, "rank 1 calls all_reduce(sum, 101 x f32) where rank 0"));
        CHECK(group.all_reduce_value(1) == 3);
        const auto allocate = [&] { static_cast<void>(group.allocate<char>(data.size())); };
        CHECK(test::throws<dptk::MismatchError>(text, allocate, test::Agreed::yes));
        CHECK(
            test::contains(text, "rank 1 calls allocate(101 bytes) where rank 0 calls allocate(100 bytes)"));
        CHECK(group.allocate<char>(100).size() == 100);
        const auto one_allocates = [&] {
            if (group.rank() == 2) return static_cast<void>(group.allocate<char>(7));
            group.barrier();
        };
        CHECK(test::throws<dptk::MismatchError>(text, one_allocates, test::Agreed::yes));
        CHECK(test::contains(text, "rank 2 calls allocate(7 bytes) where rank 0 calls barrier"));
        struct Small {
            char bytes[12];
        };
        struct Large {
            char bytes[24];
        };
        const auto gather = [&]<class T>(T) {
            const std::vector<T> mine(1000);
            std::vector<T> all(3000);
            group.all_gather(mine, all);
        };
        const auto gather_structs = [&] { group.rank() == 0 ? gather(Small{}) : gather(Large{}); };
        CHECK(test::throws<dptk::MismatchError>(text, gather_structs, test::Agreed::yes));
        CHECK(test::contains(text, "opaque) of 24 bytes each where rank 0"));
        CHECK(group.all_reduce_value(1) == 3);
    });
}

TEST_CASE("memory that is shared outlives its group, and is freed with its last user") {
    dptk::Allocation<float> kept;
    test::launch_on_hosts({"a", "a"}, [&](dptk::ProcessGroup& group) {
        dptk::Allocation<float> shared = group.allocate<float>(1000);
        dptk::ProcessGroup copy = group.duplicate();
        std::ranges::fill(shared, 1.0F);
        copy.all_reduce(shared);  // in place: a group and its duplicate share one table of allocations
        CHECK(shared[999] == 2);
        if (group.rank() == 0) kept = std::move(shared);
        CHECK(group.all_reduce_value(1) == 2);
    });
    CHECK(kept[999] == 2);
    kept[0] = 5;
    CHECK(kept[0] == 5);
}

TEST_CASE("memory that no machine has is not promised") {
    for (const std::size_t bytes : {std::size_t{1} << 62, (std::size_t{1} << 61) + 7}) {
        CHECK_THROWS_AS(test::launch_on_hosts({"a", "a"},
                                              [&](dptk::ProcessGroup& group) {
                                                  static_cast<void>(group.allocate<char>(bytes));
                                              }),
                        std::bad_alloc);
    }
}

TEST_CASE("each rank reaches all ranks' allocated memory, where they are on one host") {
    const auto check = [](dptk::ProcessGroup& group) {
        const dptk::Allocation<float> memory = group.allocate<float>(100);
        memory[7] = static_cast<float>(group.rank());
        const dptk::Buffer tail{&memory[7], 93, dptk::DType::f32, {}};
        const std::vector<void*> peers = group.engine().peer_memory(tail);
        REQUIRE(peers.size() == 3);
        CHECK(peers[static_cast<std::size_t>(group.rank())] == &memory[7]);
        group.barrier();
        for (std::size_t rank = 0; rank < 3; ++rank)
            CHECK(*static_cast<const float*>(peers[rank]) == static_cast<float>(rank));
        std::vector<float> own(100);
        CHECK(group.engine().peer_memory({own.data(), own.size(), dptk::DType::f32, {}}).empty());
        group.barrier();
    };
    test::launch_on_hosts({"a", "a", "a"}, check);
    dptk::launch_threads(3, check);
    test::launch_on_hosts({"a", "b", "b"}, [](dptk::ProcessGroup& group) {
        const dptk::Allocation<float> memory = group.allocate<float>(100);
        CHECK(group.engine().peer_memory({&memory[0], 100, dptk::DType::f32, {}}).empty());
    });
}

TEST_CASE("the algorithm of a group concerns all_reduce only") {
    test::launch_on_hosts({"a", "a"}, [](dptk::ProcessGroup& group) {
        group.set_all_reduce_algorithm(dptk::AllReduceAlgorithm::ring);
        std::vector<int> data{group.rank()};
        if (group.rank() == 0) {
            group.barrier();
            group.broadcast(data, 1);
        } else {
            group.barrier_async().wait();
            group.broadcast(data, 1, {.timeout = std::chrono::minutes(1)});
        }
        CHECK(data[0] == 1);
    });
}

TEST_CASE("ranks with different numbers of processors use the smallest one") {
    const dptk::detail::ThreadJob job(3, {});
    dptk::launch_threads(3, [&](dptk::ProcessGroup& outer) {
        const std::optional<int> own = outer.rank() == 0 ? std::nullopt : std::optional(outer.rank() * 3);
        dptk::ShmTransport transport(job.transport(outer.rank()), {.host = "a", .processors = own});
        CHECK(transport.capabilities().competes_with_compute);
        dptk::ProcessGroup group(dptk::ShmCommunicator(std::move(transport)));
        const dptk::Allocation<float> memory = group.allocate<float>(100'000);
        std::ranges::fill(memory, 1.0F);
        group.all_reduce(memory);
        CHECK(memory[0] == 3);
        CHECK(memory[99'999] == 3);
    });
    CHECK_THROWS_AS(test::launch_on_hosts(
                        {"a", "a"}, [](dptk::ProcessGroup&) {}, 0),
                    dptk::ArgumentError);
}
