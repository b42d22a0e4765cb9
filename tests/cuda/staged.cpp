// Device memory staged through the host, over thread ranks; and how a group chooses the device backend.
#include <atomic>
#include <cstdlib>
#include <numeric>
#include <optional>
#include <string_view>
#include <utility>

#include "machine.hpp"
#include "support/ranks.hpp"

namespace {

using dptk::ProcessGroup;
using test::contains;

int calls_of(const std::string& function) {
    int calls = 0;
    for (const cuda_double::Count& count : cuda_double::counts()) {
        if (count.place.function == function) calls += count.calls;
    }
    return calls;
}

}  // namespace

TEST_CASE("every verb of device memory, through the host") {
    const test::DeviceBackend staged("staged");
    for (const int ranks : {1, 2, 3, 4}) {
        const test::Machine machine(ranks);
        test::on_devices(ranks, [](ProcessGroup& group) {
            test::CudaMemory memory;
            const test::VerbSuiteOptions options{&memory, test::Rounding::once};
            test::check_reductions_on(group, options);
            test::check_weighted_sums_on(group, options);
            test::check_moves_on(group, options);
        });
        CHECK(calls_of("ncclGetUniqueId") == 0);
    }
}

TEST_CASE("calls and messages of many pieces, several ranks on one GPU") {
    const test::DeviceBackend staged("staged");
    const test::Machine machine(1);
    dptk::launch_threads(3, [](ProcessGroup& group) {
        constexpr std::size_t count = 3'000'001;
        dptk::cuda::Stream stream;
        std::vector<float> own(count);
        std::iota(own.begin(), own.end(), static_cast<float>(group.rank()));
        auto data = dptk::cuda::to_device(own, stream);
        group.all_reduce(data, dptk::ReduceOp::max, {.stream = stream});
        CHECK(dptk::cuda::to_host(data.span(), stream)[count - 1] == static_cast<float>(count + 1));
        dptk::cuda::DeviceBuffer<float> all(count * 3);
        group.all_gather(data.span().subspan(0, count), all, {.stream = stream});
        CHECK(dptk::cuda::to_host(all.span(), stream)[2 * count + 7] == 9.0F);
        std::vector<std::size_t> counts{2'500'000, 0, 10};
        dptk::cuda::DeviceBuffer<float> uneven(2'500'010);
        const std::size_t mine = counts[static_cast<std::size_t>(group.rank())];
        group.all_gather(data.span().subspan(0, mine), uneven, counts, {.stream = stream});
        CHECK(dptk::cuda::to_host(uneven.span(), stream)[2'500'003] == 5.0F);
        if (group.rank() == 0) group.send(data, 1, 7, {.stream = stream});
        if (group.rank() == 1) {
            dptk::cuda::DeviceBuffer<float> received(count);
            CHECK(group.recv(received, dptk::any_rank, 7, {.stream = stream}) == 0);
            CHECK(dptk::cuda::to_host(received.span(), stream)[count - 1] == static_cast<float>(count + 1));
        }
        group.barrier();
    });
}

TEST_CASE("calls in the background, through the host") {
    const test::DeviceBackend staged("staged");
    const test::Machine machine(2);
    test::on_devices(2, [](ProcessGroup& group) {
        dptk::cuda::Stream stream;
        std::vector<dptk::cuda::DeviceBuffer<int>> buffers;
        std::vector<dptk::Work> works;
        for (int i = 0; i < 10; ++i)
            buffers.push_back(dptk::cuda::to_device(std::vector<int>(1000, i), stream));
        for (auto& buffer : buffers)
            works.push_back(group.all_reduce_async(buffer, dptk::ReduceOp::sum, {.stream = stream}));
        group.barrier();
        for (dptk::Work& work : works) work.wait(stream);
        for (int i = 0; i < 10; ++i)
            CHECK(dptk::cuda::to_host(buffers[static_cast<std::size_t>(i)].span(), stream)[999] == 2 * i);
    });
}

TEST_CASE("a group sends host memory over its own transport, and device memory over NCCL") {
    const test::Machine machine(2);
    test::on_devices(2, [](ProcessGroup& group) {
        CHECK(group.all_reduce_value(1) == 2);
        if (group.rank() == 0) CHECK(calls_of("ncclGetUniqueId") == 0);
        group.barrier();
        dptk::cuda::Stream stream;
        auto data = dptk::cuda::to_device(std::vector<float>(100, 1.0F), stream);
        group.all_reduce(data, dptk::ReduceOp::sum, {.stream = stream});
        CHECK(dptk::cuda::to_host(data.span(), stream)[5] == 2.0F);
        CHECK(calls_of("ncclGetUniqueId") == 1);
        CHECK(group.backend() == "threads");
        const dptk::DeviceAllocation<int> memory = group.allocate_on_device<int>(5);
        group.broadcast(memory, 1, {.stream = stream});
        ProcessGroup copy = group.duplicate();
        copy.all_reduce(data, dptk::ReduceOp::avg, {.stream = stream});
        CHECK(dptk::cuda::to_host(data.span(), stream)[5] == 2.0F);
        ProcessGroup alone = group.split(group.rank());
        alone.all_reduce(data, dptk::ReduceOp::sum, {.stream = stream});
        group.barrier_async().wait();
    });
}

namespace {

/// A transport between threads that accesses device memory directly, as a CUDA-aware MPI does.
class DeviceAwareThreads final : public dptk::Transport {
  public:
    explicit DeviceAwareThreads(std::unique_ptr<dptk::Transport> threads) : threads_(std::move(threads)) {}

    [[nodiscard]] int rank() const override { return threads_->rank(); }
    [[nodiscard]] int size() const override { return threads_->size(); }
    [[nodiscard]] std::string_view backend() const override { return "device-aware threads"; }
    [[nodiscard]] std::shared_ptr<dptk::detail::ControlPlane> control() const override {
        return threads_->control();
    }
    void send(const dptk::Buffer& buffer, int to, int tag) override { threads_->send(buffer, to, tag); }
    void recv(const dptk::Buffer& buffer, int from, int tag) override { threads_->recv(buffer, from, tag); }
    [[nodiscard]] dptk::TransportCapabilities capabilities() const override { return {.duplicate = true}; }
    [[nodiscard]] bool takes_device_memory(const dptk::Collective& call) const override {
        return call.reduction.user == nullptr && !call.reduction.averages();
    }
    void run(const dptk::Collective& call) override {
        dptk::Collective on_host = call;
        on_host.input = here(call.input);
        on_host.output = here(call.output);
        threads_->run(on_host);
    }
    [[nodiscard]] std::unique_ptr<dptk::Transport> duplicate() override {
        return std::make_unique<DeviceAwareThreads>(threads_->duplicate());
    }

    static inline std::atomic<int> calls_on_devices = 0;

  private:
    [[nodiscard]] static dptk::Buffer here(const dptk::Buffer& buffer) {
        if (!buffer.on_device() || buffer.bytes() == 0) return buffer;
        ++calls_on_devices;
        return buffer.at(cuda_double::host_address(buffer.data));
    }

    std::unique_ptr<dptk::Transport> threads_;
};

}  // namespace

TEST_CASE("a transport that reaches device memory gets the buffers as they are") {
    const test::DeviceBackend staged("staged");
    const test::Machine machine(2);
    const dptk::detail::ThreadJob job(2, {});
    dptk::launch_threads(2, [&](ProcessGroup& threads) {
        ProcessGroup group = dptk::BasicCommunicator(
            DeviceAwareThreads(std::make_unique<dptk::ThreadTransport>(job.transport(threads.rank()))));
        dptk::cuda::Stream stream;
        auto input = dptk::cuda::to_device(std::vector<float>(1000, 1.0F), stream);
        dptk::cuda::DeviceBuffer<float> output(1000);
        group.all_reduce(input, output, dptk::ReduceOp::sum, {.stream = stream});
        CHECK(dptk::cuda::to_host(output.span(), stream)[999] == 2.0F);
        group.broadcast(output, 1, {.stream = stream});
        dptk::cuda::DeviceBuffer<float> both(2000);
        group.all_gather(input, both, {.stream = stream});
        CHECK(dptk::cuda::to_host(both.span(), stream)[1999] == 1.0F);
        group.barrier();
        CHECK(DeviceAwareThreads::calls_on_devices >= 6);
        group.barrier();
        const int before = DeviceAwareThreads::calls_on_devices;
        group.all_reduce(output, dptk::ReduceOp::avg,
                         {.stream = stream});  // averages are staged through the host
        CHECK(dptk::cuda::to_host(output.span(), stream)[999] == 2.0F);
        group.barrier();
        CHECK(DeviceAwareThreads::calls_on_devices == before);
    });
}

TEST_CASE("messages of different sizes are a mismatch") {
    const test::DeviceBackend staged("staged");
    const test::Machine machine(2);
    CHECK_THROWS_AS(test::on_devices(2,
                                     [](ProcessGroup& group) {
                                         dptk::cuda::DeviceBuffer<int> data(group.rank() == 0 ? 10 : 9);
                                         if (group.rank() == 0) group.send(data, 1);
                                         if (group.rank() == 1) group.recv(data, 0);
                                         group.barrier();
                                     }),
                    dptk::MismatchError);
}

TEST_CASE("different device backends are an error of all ranks") {
    const test::Machine machine(2);
    test::on_devices(1, [](ProcessGroup& group) {
        const test::DeviceBackend unknown("pigeons");
        dptk::cuda::DeviceBuffer<int> data(10);
        std::string text;
        CHECK(test::throws<dptk::ArgumentError>(text, [&] { group.all_reduce(data); }));
        CHECK(
            contains(text,
                     "invalid DPTK_DEVICE_BACKEND='pigeons': expected one of the transports of this program: "
                     "staged, nccl"));
    });
}

TEST_CASE("an input in host memory with an output in device memory is refused") {
    const test::Machine machine(1);
    test::on_devices(1, [](ProcessGroup& group) {
        dptk::cuda::DeviceBuffer<int> data(10);
        std::vector<int> here(10);
        std::string text;
        CHECK(test::throws<dptk::ArgumentError>(text, [&] { group.all_reduce(data, here); }));
        CHECK(contains(
            text, "all_reduce: the input is on cuda:0 and the output on cpu: expected both on one device"));
    });
}
