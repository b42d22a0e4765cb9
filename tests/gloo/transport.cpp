// What Gloo's verbs compute, at 1 to 4 ranks, against plain loops.
#include <dptk/comm/channel.hpp>
#include <dptk/comm/communicator.hpp>

#include <algorithm>
#include <cstring>
#include <limits>

#include "support.hpp"

namespace {

using dptk::Buffer;
using dptk::DType;
using dptk::GlooTransport;
using dptk::ReduceOp;

static_assert(dptk::Transport<GlooTransport>);
static_assert(dptk::detail::HasAllReduce<GlooTransport> && dptk::detail::HasBroadcast<GlooTransport> &&
              dptk::detail::HasAllGather<GlooTransport> && dptk::detail::HasBarrier<GlooTransport>);
static_assert(dptk::detail::HasDuplicate<GlooTransport> && dptk::detail::HasLocalRank<GlooTransport>);
static_assert(dptk::detail::HasLeave<GlooTransport> && dptk::detail::Interruptible<GlooTransport>);
static_assert(dptk::detail::HasControl<GlooTransport>);

constexpr DType all_dtypes[] = {DType::boolean, DType::i8,  DType::u8,  DType::i16, DType::u16, DType::i32,
                                DType::u32,     DType::i64, DType::u64, DType::f32, DType::f64};
constexpr ReduceOp all_ops[] = {ReduceOp::sum, ReduceOp::avg,  ReduceOp::product, ReduceOp::min,
                                ReduceOp::max, ReduceOp::band, ReduceOp::bor,     ReduceOp::bxor};

[[nodiscard]] bool is_defined(DType dtype, ReduceOp op) {
    try {
        dptk::check_reduction(dtype, op);
        return true;
    } catch (const dptk::Error&) {
        return false;
    }
}

/// Small numbers whose sums, products and means are exact, in every order.
template <class T>
[[nodiscard]] T value_of(int rank, std::size_t index) {
    if constexpr (std::same_as<T, bool>) {
        return (static_cast<std::size_t>(rank) + index) % 3 == 0;
    } else if constexpr (std::is_floating_point_v<T>) {
        return static_cast<T>(12 * ((rank + static_cast<int>(index % 7)) % 3 - 1));
    } else {
        return static_cast<T>((rank * 5 + static_cast<int>(index % 11)) % 4 + 1);
    }
}

template <class T>
[[nodiscard]] T expected_of(ReduceOp op, int ranks, std::size_t index) {
    std::vector<std::byte> memory(2 * sizeof(T));
    T total = value_of<T>(0, index);
    for (int rank = 1; rank < ranks; ++rank) {
        const T other = value_of<T>(rank, index);
        if constexpr (std::same_as<T, bool>) {
            switch (op) {
                case ReduceOp::min:
                case ReduceOp::band: total = total && other; break;
                case ReduceOp::max:
                case ReduceOp::bor: total = total || other; break;
                default: total = total != other;
            }
        } else {
            switch (op) {
                case ReduceOp::sum:
                case ReduceOp::avg: total = static_cast<T>(total + other); break;
                case ReduceOp::product: total = static_cast<T>(total * other); break;
                case ReduceOp::min: total = std::min(total, other); break;
                case ReduceOp::max: total = std::max(total, other); break;
                default: break;
            }
            if constexpr (std::integral<T>) {
                if (op == ReduceOp::band) total = static_cast<T>(total & other);
                if (op == ReduceOp::bor) total = static_cast<T>(total | other);
                if (op == ReduceOp::bxor) total = static_cast<T>(total ^ other);
            }
        }
    }
    if constexpr (std::is_floating_point_v<T>) {
        if (op == ReduceOp::avg) total /= static_cast<T>(ranks);
    }
    return total;
}

/// One byte off where the type would be aligned.
struct Unaligned {
    Unaligned(std::size_t count, DType dtype_)
        : memory(count * dptk::dtype_size(dtype_) + 1), dtype(dtype_), elements(count) {}
    [[nodiscard]] Buffer get() { return {memory.data() + 1, elements, dtype, {}}; }

    std::vector<std::byte> memory;
    DType dtype;
    std::size_t elements;
};

void check_all_reduce(GlooTransport& transport, DType dtype, ReduceOp op, std::size_t count) {
    dptk::visit_dtype(dtype, [&](auto zero) {
        using T = decltype(zero);
        Unaligned data(count, dtype);
        const Buffer buffer = data.get();
        for (std::size_t i = 0; i < count; ++i)
            dptk::detail::store<T>(buffer.data, i, value_of<T>(transport.rank(), i));
        transport.all_reduce(buffer, op);
        std::size_t wrong = 0;
        for (std::size_t i = 0; i < count; ++i) {
            const T expected = expected_of<T>(op, transport.size(), i);
            wrong += dptk::detail::load<T>(buffer.data, i) != expected ? 1 : 0;
        }
        CHECK_MESSAGE(wrong == 0, dptk::dtype_name(dtype) << " " << dptk::reduce_op_name(op) << " " << count);
    });
}

}  // namespace

TEST_CASE("all_reduce equals plain loops for every dtype and operation, also in unaligned memory") {
    for (const int ranks : {1, 2, 3, 4}) {
        test::on_ranks({.size = ranks}, [&](GlooTransport& transport) {
            CHECK(transport.backend() == "gloo");
            for (const DType dtype : all_dtypes) {
                for (const ReduceOp op : all_ops) {
                    if (!is_defined(dtype, op)) continue;
                    for (const std::size_t count : {0U, 1U, 3U, 257U})
                        check_all_reduce(transport, dtype, op, count);
                }
            }
        });
    }
}

TEST_CASE("all ranks get the same bits from large sums that round") {
    for (const int ranks : {2, 3, 4}) {
        std::vector<std::vector<float>> results(static_cast<std::size_t>(ranks));
        test::on_ranks({.size = ranks}, [&](GlooTransport& transport) {
            std::vector<float> data(1'500'001);
            for (std::size_t i = 0; i < data.size(); ++i)
                data[i] =
                    1.0F / static_cast<float>(i + static_cast<std::size_t>(transport.rank()) * 7919 + 1);
            transport.all_reduce(test::buffer(data), ReduceOp::avg);
            double worst = 0;
            for (std::size_t i = 0; i < data.size(); ++i) {
                double mean = 0;
                for (int rank = 0; rank < ranks; ++rank)
                    mean += 1.0F / static_cast<float>(i + static_cast<std::size_t>(rank) * 7919 + 1);
                mean /= ranks;
                worst = std::max(worst, std::abs(data[i] - mean) / mean);
            }
            CHECK(worst < 1e-6);
            results[static_cast<std::size_t>(transport.rank())] = std::move(data);
        });
        for (const auto& result : results)
            CHECK(std::memcmp(result.data(), results[0].data(), result.size() * sizeof(float)) == 0);
    }
}

TEST_CASE("broadcast sends the root's elements, from every root") {
    for (const int ranks : {1, 2, 3, 4}) {
        test::on_ranks({.size = ranks}, [&](GlooTransport& transport) {
            for (int root = 0; root < ranks; ++root) {
                for (const std::size_t count : {0U, 1U, 5U, 1'000'003U}) {
                    std::vector<std::uint16_t> data(count, static_cast<std::uint16_t>(transport.rank()));
                    transport.broadcast(test::buffer(data), root);
                    const auto right = static_cast<std::size_t>(std::count(data.begin(), data.end(), root));
                    CHECK(right == count);
                }
            }
        });
    }
}

TEST_CASE("all_gather puts the inputs in rank order, also where the input is its place in the output") {
    for (const int ranks : {1, 2, 3, 4}) {
        test::on_ranks({.size = ranks}, [&](GlooTransport& transport) {
            for (const std::size_t count : {0U, 1U, 5U, 300'007U}) {
                for (const bool in_place : {false, true}) {
                    std::vector<double> input(count, transport.rank() + 0.5);
                    std::vector<double> output(count * static_cast<std::size_t>(ranks), -1);
                    const auto first = count * static_cast<std::size_t>(transport.rank());
                    if (in_place)
                        std::copy(input.begin(), input.end(), output.begin() + static_cast<long>(first));
                    const Buffer whole = test::buffer(output);
                    transport.all_gather(in_place ? whole.slice(first, count) : test::buffer(input), whole);
                    std::size_t wrong = 0;
                    for (std::size_t i = 0; i < output.size(); ++i)
                        wrong += output[i] != static_cast<double>(i / count) + 0.5 ? 1 : 0;
                    CHECK(wrong == 0);
                }
            }
        });
    }
}

TEST_CASE("no rank leaves a barrier before all have come") {
    for (const int ranks : {1, 2, 3, 4}) {
        std::atomic<int> arrived = 0;
        test::on_ranks({.size = ranks}, [&](GlooTransport& transport) {
            for (int round = 1; round <= 50; ++round) {
                ++arrived;
                transport.barrier();
                CHECK(arrived >= round * ranks);
            }
        });
    }
}

TEST_CASE("messages are told apart by sender and tag, whatever the order of their receipt") {
    constexpr int tags[] = {0, 7, -1, std::numeric_limits<int>::max(), std::numeric_limits<int>::min()};
    constexpr std::size_t counts[] = {0, 1, 3, 70'000, 500'000};
    for (const int ranks : {2, 3, 4}) {
        test::on_ranks({.size = ranks}, [&](GlooTransport& transport) {
            if (transport.rank() != 0) {
                std::vector<std::jthread> senders;  // a send blocks until its message is received
                for (std::size_t i = 0; i < std::size(tags); ++i) {
                    senders.emplace_back([&, i] {
                        std::vector<int> data(counts[i], 100 * transport.rank() + static_cast<int>(i));
                        transport.send(test::buffer(data), 0, tags[i]);
                    });
                }
                return;
            }
            for (std::size_t i = std::size(tags); i-- > 0;) {
                for (int from = ranks - 1; from > 0; --from) {
                    std::vector<int> data(counts[i], -1);
                    transport.recv(test::buffer(data), from, tags[i]);
                    const int expected = 100 * from + static_cast<int>(i);
                    CHECK(std::count(data.begin(), data.end(), expected) == static_cast<long>(counts[i]));
                }
            }
        });
    }
}

TEST_CASE("messages with the same tag come in the order in which they were sent") {
    test::on_ranks({.size = 2}, [&](GlooTransport& transport) {
        for (int i = 0; i < 100; ++i) {
            std::vector<int> data{transport.rank() == 0 ? i : -1};
            if (transport.rank() == 0) transport.send(test::buffer(data), 1, 3);
            if (transport.rank() == 1) transport.recv(test::buffer(data), 0, 3);
            CHECK(data[0] == i);
        }
    });
}

TEST_CASE("collectives, messages and duplicates do not meet, whichever thread calls them") {
    for (const int ranks : {2, 3}) {
        test::on_ranks({.size = ranks}, [&](GlooTransport& transport) {
            GlooTransport first = transport.duplicate();
            GlooTransport second = first.duplicate();
            const auto work = [&](GlooTransport& on, int scale) {
                std::size_t wrong = 0;
                for (int round = 0; round < 40; ++round) {
                    std::vector<std::int64_t> data(static_cast<std::size_t>(1 + round * 500),
                                                   scale * (on.rank() + round));
                    on.all_reduce(test::buffer(data), ReduceOp::sum);
                    const std::int64_t expected = scale * (ranks * (ranks - 1) / 2 + ranks * round);
                    wrong += data.front() != expected || data.back() != expected ? 1U : 0U;
                    std::vector<int> note{scale};
                    if (on.rank() == 0) on.send(test::buffer(note), 1, round % 2);
                    if (on.rank() == 1) {
                        note[0] = 0;
                        on.recv(test::buffer(note), 0, round % 2);
                        wrong += note[0] != scale ? 1U : 0U;
                    }
                }
                CHECK(wrong == 0);
            };
            {
                const std::jthread one([&] { work(first, 1); });
                const std::jthread two([&] { work(second, 100); });
                work(transport, 10'000);
            }
            first.leave();
            second.leave();
        });
    }
}

TEST_CASE("a communicator over Gloo works in the background and closes in any order") {
    const test::Job job{.size = 3};
    std::vector<std::jthread> threads;
    for (int rank = 0; rank < job.size; ++rank) {
        threads.emplace_back([&, rank] {
            auto main =
                std::make_unique<dptk::BasicCommunicator<GlooTransport>>(GlooTransport(job.options(rank)));
            auto other = std::make_unique<dptk::BasicCommunicator<GlooTransport>>(main->duplicate());
            std::vector<float> data(10'000, 1.0F);
            auto work = other->all_reduce_async(data);
            CHECK(main->all_reduce_value(1) == 3);
            work.wait();
            CHECK(data[9'999] == 3.0F);
            (rank == 1 ? main : other).reset();
        });
    }
    threads.clear();
    CHECK(!job.health->failed());
}

TEST_CASE("one rank needs no store and makes no connections") {
    GlooTransport alone({});
    std::vector<double> data{3.0};
    alone.all_reduce(test::buffer(data), ReduceOp::avg);
    alone.broadcast(test::buffer(data), 0);
    alone.barrier();
    GlooTransport copy = alone.duplicate();
    copy.leave();
    alone.leave();
    CHECK(data[0] == 3.0);
    CHECK(alone.address().empty());
    CHECK(!test::message_of<dptk::ArgumentError>([&] { alone.send(test::buffer(data), 0, 0); }).empty());
}

TEST_CASE("options that do not fit are told") {
    using test::contains;
    const auto message = [](dptk::GlooOptions options) {
        return test::message_of<dptk::ArgumentError>([&] { GlooTransport transport(std::move(options)); });
    };
    const auto store = std::make_shared<dptk::InProcessStore>();
    CHECK(contains(message({.rank = 2, .size = 2, .store = store}), "no rank 2 of 2"));
    CHECK(contains(message({.rank = 1, .size = 2}), "rank 1: Gloo needs a store"));
    const std::string wrong = message({.size = 2, .store = store, .interface = "nowhere0"});
    CHECK(contains(wrong, "\"nowhere0\" is no network interface, host name or address of"));
    CHECK(contains(wrong, "lo (127.0.0.1)"));
}

TEST_CASE("an interface may be given by its name, a host name, an address, or not at all") {
    using dptk::detail::choose_address;
    CHECK(choose_address("lo") == "127.0.0.1");
    CHECK(choose_address("localhost") == "127.0.0.1");
    CHECK(choose_address("127.0.0.1") == "127.0.0.1");
    CHECK(choose_address("127.0.1.1") == "127.0.0.1");
    test::Job job{.size = 2};
    std::vector<std::jthread> threads;
    for (int rank = 0; rank < 2; ++rank) {
        threads.emplace_back([&, rank] {
            dptk::GlooOptions options = job.options(rank);
            options.interface = "";
            GlooTransport transport(std::move(options));
            transport.barrier();
            transport.leave();
        });
    }
}

TEST_CASE("without a name that leads anywhere, the only address that others could reach is taken") {
    using dptk::detail::default_address;
    CHECK(default_address({{"lo", "127.0.0.1", AF_INET, true}, {"eth0", "192.0.2.1", AF_INET, false}}) ==
          "192.0.2.1");
    CHECK(default_address({{"lo", "127.0.0.1", AF_INET, true},
                           {"eth0", "192.0.2.1", AF_INET, false},
                           {"eth1", "192.0.2.2", AF_INET, false}}) == "127.0.0.1");
    CHECK(default_address({}) == "127.0.0.1");
}
