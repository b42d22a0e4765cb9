// Error handling of groups over NCCL: missing ranks, aborts that hang, asynchronous errors, invalid
// arguments.
#include <chrono>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "dptk/comm/multi_device.hpp"
#include "dptk/control/store/in_process_store.hpp"
#include "machine.hpp"
#include "support/ranks.hpp"

namespace {

using dptk::ProcessGroup;
using namespace std::chrono_literals;
using test::contains;

using Clock = std::chrono::steady_clock;

/// Runs fn(threads) on two ranks with one device each, which must end within `limit`. Returns the texts of
/// the exceptions that it throws.
template <class E0, class E1, class Fn>
std::vector<std::string> endings(std::chrono::milliseconds timeout, std::chrono::milliseconds limit,
                                 Fn&& fn) {
    std::vector<std::string> texts(2);
    const auto begin = Clock::now();
    try {
        test::on_devices(2,
                         [&](ProcessGroup& threads) {
                             const auto record = [&]<class E>(std::type_identity<E>) {
                                 try {
                                     fn(threads);
                                 } catch (const E& error) {
                                     texts[static_cast<std::size_t>(threads.rank())] = error.what();
                                     throw;
                                 }
                             };
                             if (threads.rank() == 0) record(std::type_identity<E0>());
                             if (threads.rank() == 1) record(std::type_identity<E1>());
                         },
                         {.timeout = timeout});
    } catch (const std::exception&) {
        // The texts are recorded above.
    }
    CHECK(Clock::now() - begin < limit);
    return texts;
}

void all_reduce(ProcessGroup& group) {
    dptk::cuda::Stream stream;
    auto data = dptk::cuda::to_device(std::vector<float>(100, 1.0F), stream);
    group.all_reduce(data, dptk::ReduceOp::sum, {.stream = stream});
    stream.synchronize();
}

class Silence {
  public:
    Silence() {
        dptk::set_log_sink([](dptk::LogLevel, int, std::string_view) {});
    }
    ~Silence() { dptk::set_log_sink({}); }
    Silence(const Silence&) = delete;
    Silence& operator=(const Silence&) = delete;
};

}  // namespace

TEST_CASE(
    "a rank that does not enter a collective: the other one throws at the timeout, and names the missing "
    "rank") {
    const test::Machine machine(2);
    const Silence silence;
    const auto texts = endings<dptk::TimeoutError, dptk::TimeoutError>(500ms, 3s, [](ProcessGroup& threads) {
        ProcessGroup group = dptk::nccl_communicator(threads);
        if (threads.rank() == 0) {
            dptk::cuda::Stream stream;
            auto data = dptk::cuda::to_device(std::vector<float>(100, 1.0F), stream);
            group.all_reduce(data, dptk::ReduceOp::sum, {.stream = stream});  // does not block the host
            stream.synchronize();                                             // blocks until the abort
            group.barrier();
        } else {
            std::this_thread::sleep_for(1s);
            group.barrier();
        }
    });
    CHECK(contains(texts[0], "all_reduce(sum, 100 x f32) #1 has not completed within 500 ms"));
    CHECK(contains(texts[0], "missing: rank 1"));
    CHECK(texts[1] == texts[0]);  // one process, one job
}

TEST_CASE("a rank that does not enter a started collective: Work::wait throws at the timeout") {
    const test::Machine machine(2);
    const Silence silence;
    const auto texts = endings<dptk::TimeoutError, dptk::TimeoutError>(500ms, 3s, [](ProcessGroup& threads) {
        ProcessGroup group = dptk::nccl_communicator(threads);
        auto data = dptk::cuda::to_device(std::vector<float>(100, 1.0F));
        if (threads.rank() == 1) {
            std::this_thread::sleep_for(1s);
            return threads.barrier();
        }
        dptk::Work work = group.all_reduce_async(data);
        CHECK_FALSE(work.wait(50ms));
        work.wait();
    });
    CHECK(contains(texts[0], "missing: rank 1"));
}

TEST_CASE("a rank that throws between two calls ends the other one's wait with its text") {
    const test::Machine machine(2);
    const Silence silence;
    const auto texts = endings<dptk::PeerLostError, std::runtime_error>(20s, 3s, [](ProcessGroup& threads) {
        ProcessGroup group = dptk::nccl_communicator(threads);
        all_reduce(group);
        if (threads.rank() == 1) throw std::runtime_error("out of data");
        all_reduce(group);
        group.barrier();
    });
    CHECK(contains(texts[0], "rank 1"));
    CHECK(texts[1] == "out of data");
}

TEST_CASE("a rank that does not connect") {
    const test::Machine machine(2);
    const Silence silence;
    const auto texts = endings<dptk::TimeoutError, dptk::TimeoutError>(500ms, 3s, [](ProcessGroup& threads) {
        if (threads.rank() == 1) std::this_thread::sleep_for(1s);
        ProcessGroup group = dptk::nccl_communicator(threads);
    });
    CHECK(contains(texts[0], "has not completed within 500 ms; missing: rank 1"));
}

TEST_CASE("a rank that does not enter a split") {
    const test::Machine machine(2);
    const Silence silence;
    const auto texts = endings<dptk::TimeoutError, dptk::TimeoutError>(500ms, 3s, [](ProcessGroup& threads) {
        ProcessGroup group = dptk::nccl_communicator(threads);
        if (threads.rank() == 1) std::this_thread::sleep_for(1s);
        static_cast<void>(group.duplicate());
        threads.barrier();
    });
    CHECK(contains(texts[0], "duplicate"));
    CHECK(contains(texts[0], "has not completed within 500 ms"));
    CHECK(contains(texts[0], "rank 1"));
}

TEST_CASE("a rank that does not close: the next call throws") {
    const test::Machine machine(2);
    const Silence silence;
    const auto texts = endings<dptk::TimeoutError, dptk::TimeoutError>(500ms, 3s, [](ProcessGroup& threads) {
        std::optional<ProcessGroup> group = dptk::nccl_communicator(threads);
        all_reduce(*group);
        if (threads.rank() == 1) std::this_thread::sleep_for(1s);
        group.reset();
        threads.barrier();
    });
    CHECK(contains(texts[0], "ncclCommFinalize has not completed within 500 ms"));
}

TEST_CASE("a rank that is slow to connect is waited for") {
    const test::Machine machine(2);
    cuda_double::delay({"ncclCommInitRankConfig", 1}, 1, 300);
    test::on_devices(2, [](ProcessGroup& threads) {
        ProcessGroup group = dptk::nccl_communicator(threads);
        all_reduce(group);
    });
}

TEST_CASE("NCCL never accepts a call: TimeoutError at the timeout, in every phase") {
    for (const char* function : {"ncclCommInitRankConfig", "ncclAllReduce", "ncclCommFinalize"}) {
        const test::Machine machine(2);
        const Silence silence;
        cuda_double::hang({function, 1}, 1);  // so that rank 0 waits for rank 1 inside NCCL
        const auto begin = Clock::now();
        std::thread later([] {
            std::this_thread::sleep_for(1500ms);
            cuda_double::release();
        });
        CHECK_THROWS_AS(test::on_devices(2,
                                         [](ProcessGroup& threads) {
                                             {
                                                 ProcessGroup group = dptk::nccl_communicator(threads);
                                                 all_reduce(group);
                                             }
                                             threads.barrier();
                                         },
                                         {.timeout = 500ms}),
                        dptk::TimeoutError);
        later.join();
        CHECK(Clock::now() - begin < 6s);
    }
}

TEST_CASE("an abort that hangs blocks no rank: the error is thrown within seconds") {
    const test::Machine machine(2);
    const Silence silence;
    cuda_double::hang({"ncclCommAbort", 0}, 1);
    const auto texts = endings<dptk::PeerLostError, std::runtime_error>(20s, 8s, [](ProcessGroup& threads) {
        ProcessGroup group = dptk::nccl_communicator(threads);
        auto data = dptk::cuda::to_device(std::vector<float>(100, 1.0F));
        dptk::Work work;
        if (threads.rank() == 0) work = group.all_reduce_async(data);
        threads.barrier();
        if (threads.rank() == 1) throw std::runtime_error("out of data");
        work.wait();
    });
    CHECK(contains(texts[0], "rank 1"));
    CHECK(dptk::cuda::detail::is_stuck(0));
    // Memory that the GPU may still use is not freed, since that would wait for the GPU.
    CHECK(cuda_double::leftovers() == std::vector<std::string>{"1 communicators", "1 pieces of memory"});
    cuda_double::forget_memory();
    cuda_double::release();
    for (int i = 0; i < 1000 && dptk::cuda::detail::is_stuck(0); ++i) std::this_thread::sleep_for(1ms);
    CHECK_FALSE(dptk::cuda::detail::is_stuck(0));
}

TEST_CASE("an asynchronous error of NCCL is thrown by wait() and by the next call") {
    for (const bool waits : {true, false}) {
        const test::Machine machine(2);
        const Silence silence;
        const auto texts =
            endings<dptk::PeerLostError, dptk::BackendError>(20s, 3s, [&](ProcessGroup& threads) {
                ProcessGroup group = dptk::nccl_communicator(threads);
                threads.barrier();
                if (threads.rank() == 1) cuda_double::fail_in_background(1, 1, ncclSystemError);
                threads.barrier();
                auto data = dptk::cuda::to_device(std::vector<float>(100, 1.0F));
                dptk::Work work = group.all_reduce_async(data);
                if (waits) work.wait();
                while (true) {
                    std::this_thread::sleep_for(20ms);
                    group.barrier();
                }
            });
        CHECK(contains(texts[1], "unhandled system error"));
        CHECK(contains(texts[0], "rank 1: "));
        CHECK(contains(texts[0], "unhandled system error"));
    }
}

TEST_CASE("two ranks on one GPU are found before NCCL connects, on both, and the group stays usable") {
    const test::Machine machine(2);
    cuda_double::put_on_one_gpu(0, 1);
    test::on_devices(2, [](ProcessGroup& threads) {
        std::string text;
        CHECK(test::throws<dptk::ArgumentError>(
            text, [&] { static_cast<void>(dptk::nccl_communicator(threads)); }, test::Agreed::yes));
        CHECK(contains(text, "rank 0 (host "));
        CHECK(contains(text, "rank 1 (host "));
        CHECK(contains(text, "are both on GPU 0000:01:00.0"));
        threads.barrier();
    });
    for (const cuda_double::Count& count : cuda_double::counts())
        CHECK(count.place.function != "ncclCommInitRankConfig");
}

TEST_CASE("a group whose devices could not be connected can still be used and closed") {
    const test::Machine machine(4);
    cuda_double::put_on_one_gpu(0, 2);
    dptk::launch_threads(2, [](ProcessGroup& group) {
        std::vector<dptk::cuda::DeviceBuffer<float>> buffers;
        for (const int device : {0, 1}) {
            const dptk::cuda::DeviceScope on(2 * group.rank() + device);
            buffers.push_back(dptk::cuda::to_device(std::vector<float>(4)));
        }
        std::string text;
        for (int i = 0; i < 2; ++i) {
            CHECK(test::throws<dptk::ArgumentError>(
                text, [&] { dptk::multi_device::all_reduce(group, buffers); }, test::Agreed::yes));
            CHECK(contains(text, "are both on GPU 0000:01:00.0"));
            group.barrier();
        }
    });
}

TEST_CASE("a message on the default stream of the group's device, from a thread with another one") {
    const test::Machine machine(3);
    test::on_devices(2, [](ProcessGroup& threads) {
        ProcessGroup group = dptk::nccl_communicator(threads);
        auto data = dptk::cuda::to_device(std::vector<float>(1000, static_cast<float>(threads.rank())));
        const dptk::cuda::DeviceScope elsewhere(2);
        if (threads.rank() == 0) group.send(data, 1);
        if (threads.rank() == 1) group.recv(data, 0);
        const dptk::cuda::DeviceScope here(threads.rank());
        CHECK(dptk::cuda::to_host(data.span())[999] == 0.0F);
    });
}

TEST_CASE("an NCCL version that is too old for the program is an error of all ranks") {
    const test::Machine machine(2);
    cuda_double::set_nccl_version(21403);
    test::on_devices(2, [](ProcessGroup& threads) {
        std::string text;
        CHECK(test::throws<dptk::BackendError>(
            text, [&] { static_cast<void>(dptk::nccl_communicator(threads)); }, test::Agreed::yes));
        CHECK(contains(text, "has loaded NCCL 21403"));
        threads.barrier();
    });
}

TEST_CASE("elements on another device than the group's are refused") {
    const test::Machine machine(2);
    dptk::launch_threads(1, [](ProcessGroup& threads) {
        dptk::cuda::set_device(1);
        auto elsewhere = dptk::cuda::to_device(std::vector<float>(4));
        dptk::cuda::set_device(0);
        ProcessGroup group = dptk::nccl_communicator(threads);
        std::string text;
        CHECK(test::throws<dptk::ArgumentError>(text, [&] { group.all_reduce(elsewhere); }));
        CHECK(
            contains(text, "expected elements on cuda:0, the device of this group, got elements on cuda:1"));
    });
}

TEST_CASE("device memory is refused if a group only supports host memory") {
    const test::Machine machine(1);
    dptk::SelfCommunicator self(dptk::SelfTransport{});
    auto data = dptk::cuda::to_device(std::vector<float>(4));
    std::string text;
    CHECK(test::throws<dptk::ArgumentError>(text, [&] { self.all_reduce(data); }));
    CHECK(
        contains(text, "all_reduce(sum, 4 x f32) on a device: the transport self supports only host memory"));
    CHECK_THROWS_AS(static_cast<void>(self.allocate_on_device<float>(4)), dptk::ArgumentError);
}

TEST_CASE("ranks find each other through a store") {
    const test::Machine machine(3);
    const auto store = std::make_shared<dptk::InProcessStore>();
    const auto job_state = std::make_shared<dptk::detail::JobState>();
    std::vector<std::thread> ranks;
    for (int rank = 0; rank < 3; ++rank) {
        ranks.emplace_back([&, rank] {
            dptk::cuda::set_device(rank);
            dptk::NcclCommunicator group(
                dptk::NcclTransport({.rank = rank, .size = 3, .store = store, .job_state = job_state}));
            CHECK(group.all_reduce_value(1) == 3);
            CHECK(group.local_rank() == rank);
            CHECK(group.local_size() == 3);
            dptk::ProcessGroup whole(std::move(group));
            dptk::ProcessGroup pair = whole.subgroup({2, 0});
            if (pair.is_member()) CHECK(pair.all_gather_value(rank) == std::vector{2, 0});
        });
    }
    for (std::thread& rank : ranks) rank.join();
}

TEST_CASE("ranks that are missing in the store are named") {
    const test::Machine machine(1);
    const auto store = std::make_shared<dptk::InProcessStore>();
    std::string text;
    CHECK(test::throws<dptk::TimeoutError>(text, [&] {
        const dptk::NcclTransport alone({.rank = 1, .size = 3, .store = store, .timeout = 300ms});
    }));
    CHECK(contains(text, "rank 1: NCCL: connecting: timed out after 300 ms, missing ranks 0, 2 of 3"));
    CHECK_THROWS_AS(dptk::NcclTransport({.rank = 3, .size = 3, .store = store}), dptk::ArgumentError);
    CHECK_THROWS_AS(dptk::NcclTransport({.rank = 0, .size = 3}), dptk::ArgumentError);
}

TEST_CASE("a communicator of the caller is used, and stays open") {
    const test::Machine machine(2);
    ncclUniqueId id;
    REQUIRE(ncclGetUniqueId(&id) == ncclSuccess);
    std::vector<std::thread> ranks;
    for (int rank = 0; rank < 2; ++rank) {
        ranks.emplace_back([&, rank] {
            dptk::cuda::set_device(rank);
            ncclComm_t comm = nullptr;
            REQUIRE(ncclCommInitRank(&comm, 2, id, rank) == ncclSuccess);
            {
                dptk::ProcessGroup group =
                    dptk::NcclCommunicator(dptk::NcclTransport(comm, dptk::NcclOwner::caller));
                CHECK(group.rank() == rank);
                CHECK(group.all_reduce_value(rank + 1) == 3);
                dptk::ProcessGroup copy = group.duplicate();
                CHECK(copy.all_reduce_value(rank + 1) == 3);
            }
            CHECK(ncclCommDestroy(comm) == ncclSuccess);
        });
    }
    for (std::thread& rank : ranks) rank.join();
}

TEST_CASE("the group's memory is registered as long as both live, in whatever order they are destroyed") {
    const test::Machine machine(2);
    test::on_devices(2, [](ProcessGroup& threads) {
        std::optional<dptk::DeviceAllocation<float>> survivor;
        {
            ProcessGroup group = dptk::nccl_communicator(threads);
            const dptk::DeviceAllocation<float> memory = group.allocate_on_device<float>(1000);
            dptk::cuda::Stream stream;
            CHECK(dptk::cuda::to_host(memory.span(), stream) == std::vector<float>(1000));
            group.all_reduce(memory, dptk::ReduceOp::avg, {.stream = stream});
            stream.synchronize();
            survivor = group.allocate_on_device<float>(10);
        }
        CHECK(dptk::cuda::to_host(survivor->span()) == std::vector<float>(10));
    });
}

TEST_CASE("memory that is dropped after a call stays valid until the GPU has completed the call") {
    const test::Machine machine(2);
    test::on_devices(2, [](ProcessGroup& threads) {
        ProcessGroup group = dptk::nccl_communicator(threads);
        dptk::cuda::Stream stream;
        for (int i = 0; i < 20; ++i) {
            const dptk::DeviceAllocation<float> memory = group.allocate_on_device<float>(100'000);
            group.all_reduce(memory, dptk::ReduceOp::sum, {.stream = stream});
        }
    });
}

TEST_CASE("a communicator of the caller whose other rank is missing: TimeoutError") {
    const test::Machine machine(2);
    const Silence silence;
    ncclUniqueId id;
    REQUIRE(ncclGetUniqueId(&id) == ncclSuccess);
    std::vector<std::thread> ranks;
    std::string text;
    for (int rank = 0; rank < 2; ++rank) {
        ranks.emplace_back([&, rank] {
            dptk::cuda::set_device(rank);
            ncclComm_t comm = nullptr;
            REQUIRE(ncclCommInitRank(&comm, 2, id, rank) == ncclSuccess);
            if (rank == 1) return static_cast<void>(ncclCommAbort(comm));
            CHECK(test::throws<dptk::TimeoutError>(text, [&] {
                const dptk::NcclTransport transport(comm, dptk::NcclOwner::dptk, {.timeout = 300ms});
            }));
        });
    }
    for (std::thread& rank : ranks) rank.join();
    CHECK(contains(text, "rank 0: the exchange of peer info has not completed within 300 ms"));
}

TEST_CASE(
    "operations that cannot be captured are refused in a capture; captures elsewhere are not disturbed") {
    const test::Machine machine(2);
    dptk::launch_threads(1, [](ProcessGroup& threads) {
        ProcessGroup group = dptk::nccl_communicator(threads);
        dptk::cuda::Stream stream;
        dptk::cuda::Stream captured;
        auto data = dptk::cuda::to_device(std::vector<float>(4), stream);
        cudaGraph_t graph = nullptr;
        dptk::cuda::check(cudaStreamBeginCapture(captured.get(), cudaStreamCaptureModeGlobal), "capture");
        dptk::Work work = group.all_reduce_async(data, dptk::ReduceOp::sum, {.stream = stream});
        std::this_thread::sleep_for(300ms);  // the watchdog runs meanwhile
        work.wait();
        std::string text;
        CHECK(test::throws<dptk::ArgumentError>(text, [&] {
            static_cast<void>(group.all_reduce_async(data, dptk::ReduceOp::sum, {.stream = captured}));
        }));
        CHECK(contains(
            text, "rank 0: this call must not be made on a stream that is being captured into a CUDA graph"));
        dptk::cuda::check(cudaStreamEndCapture(captured.get(), &graph), "capture");
        dptk::cuda::check(cudaGraphDestroy(graph), "graph");
    });
}

TEST_CASE("a Work that is dropped is completed, and its memory kept") {
    const test::Machine machine(2);
    test::on_devices(2, [](ProcessGroup& threads) {
        ProcessGroup group = dptk::nccl_communicator(threads);
        for (int i = 0; i < 20; ++i) {
            const dptk::DeviceAllocation<float> memory = group.allocate_on_device<float>(1000);
            group.all_reduce_async(memory).detach();
        }
        group.barrier();
    });
}

TEST_CASE("wait(stream) orders the stream after a call, and does not block") {
    const test::Machine machine(2);
    test::on_devices(2, [](ProcessGroup& threads) {
        ProcessGroup group = dptk::nccl_communicator(threads);
        dptk::cuda::Stream stream;
        auto data = dptk::cuda::to_device(std::vector<float>(1000, 1.0F), stream);
        threads.barrier();
        if (threads.rank() == 0) {
            dptk::Work work = group.all_reduce_async(data, dptk::ReduceOp::sum, {.stream = stream});
            work.wait(stream);
            CHECK_FALSE(work.done());
            threads.barrier();
        } else {
            threads.barrier();  // rank 0's host was not blocked
            group.all_reduce(data, dptk::ReduceOp::sum, {.stream = stream});
        }
        const std::vector<float> result = dptk::cuda::to_host(data.span(), stream);
        CHECK(result[999] == 2.0F);
    });
}
