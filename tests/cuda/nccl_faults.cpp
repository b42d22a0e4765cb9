// Fault injection: each CUDA and NCCL call fails in turn, on one of two ranks, in each phase of a
// communicator's life.
#include <dptk/core/cuda/graph.hpp>
#include <dptk/ddp/distributed_data_parallel.hpp>
#include <dptk/ddp/hooks/compress.hpp>
#include <dptk/ddp/hooks/powersgd.hpp>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <exception>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "machine.hpp"

namespace {

using dptk::ProcessGroup;

enum class Phase { init, collective, training, hooks, graph, split, close };

constexpr Phase all_phases[] = {Phase::init,  Phase::collective, Phase::training, Phase::hooks,
                                Phase::graph, Phase::split,      Phase::close};

constexpr const char* name_of(Phase phase) {
    switch (phase) {
        case Phase::init: return "init";
        case Phase::collective: return "collective";
        case Phase::training: return "training";
        case Phase::hooks: return "training with hooks";
        case Phase::graph: return "training in a graph";
        case Phase::split: return "split";
        case Phase::close: return "close";
    }
    return "no phase";
}

/// An injected error: the kth call of a function in a phase, on rank 1, returns `error`.
struct Fault {
    std::string function;
    int kth = 1;
    int error = 0;
};

enum class Ending { well, argument, backend, lost, timeout, other };

struct Outcome {
    std::vector<Ending> endings = std::vector<Ending>(2, Ending::well);
    std::vector<std::string> texts = std::vector<std::string>(2);
    std::vector<std::string> logged;
    std::chrono::milliseconds duration{0};
    /// How often rank 1 has called each function in the phase.
    std::map<std::string, int> calls;
};

std::map<std::string, int> calls_of_rank_1() {
    std::map<std::string, int> calls;
    for (const cuda_double::Count& count : cuda_double::counts()) {
        if (count.place.device == 1) calls[count.place.function] = count.calls;
    }
    return calls;
}

Ending ending_of(std::exception_ptr error, std::string& text) {
    try {
        std::rethrow_exception(error);
    } catch (const dptk::Error& failure) {
        text = failure.what();
        if (dynamic_cast<const dptk::ArgumentError*>(&failure) != nullptr) return Ending::argument;
        if (dynamic_cast<const dptk::BackendError*>(&failure) != nullptr) return Ending::backend;
        if (dynamic_cast<const dptk::PeerLostError*>(&failure) != nullptr) return Ending::lost;
        if (dynamic_cast<const dptk::TimeoutError*>(&failure) != nullptr) return Ending::timeout;
        return Ending::other;
    } catch (const std::exception& failure) {
        text = failure.what();
        return Ending::other;
    }
}

void use(ProcessGroup& group) {
    dptk::cuda::Stream stream;
    auto data = dptk::cuda::to_device(std::vector<float>(1000, 1.0F), stream);
    group.all_reduce(data, dptk::ReduceOp::sum, {.stream = stream});
    group.all_reduce(data, dptk::WeightedSum{0.5}, {.stream = stream});
    dptk::Work work = group.all_reduce_async(data, dptk::ReduceOp::avg, {.stream = stream});
    const std::vector<int> ranks = group.all_gather_value(group.rank());
    CHECK(ranks.back() == group.size() - 1);
    const int other = 1 - group.rank();
    dptk::cuda::DeviceBuffer<float> received(1000);
    dptk::Work sending = group.send_async(data, other, 0, {.stream = stream});
    group.recv(received, other, 0, {.stream = stream});
    sending.wait();
    std::vector<short> bits(10, 1);
    group.all_reduce(bits, dptk::ReduceOp::bor);
    work.wait();
    group.barrier();
    const std::vector<float> result = dptk::cuda::to_host(data.span(), stream);
    CHECK(result[7] == 2.0F);
}

/// Steps with gradients on the device, and with sample counts.
void train(ProcessGroup& group) {
    std::vector<dptk::cuda::DeviceBuffer<float>> values;
    std::vector<dptk::cuda::DeviceBuffer<float>> gradients;
    for (const std::size_t size : {100U, 3000U, 7U}) {
        values.emplace_back(size);
        gradients.push_back(
            dptk::cuda::to_device(std::vector<float>(size, static_cast<float>(group.rank()))));
    }
    dptk::DistributedDataParallel ddp(group, values, gradients,
                                      {.bucket_cap_mb = 0.0005, .ready = dptk::Ready::marked});
    for (int step = 0; step < 2; ++step) {
        ddp.begin_step(static_cast<std::size_t>(1 + 2 * group.rank()));
        for (std::size_t i = gradients.size(); i-- > 0;) ddp.mark_ready(i);
        ddp.synchronize();
    }
    ddp.check();  // otherwise errors of the last step would not be thrown
    const std::vector<float> average = dptk::cuda::to_host(gradients[1].span());
    CHECK(average[2999] == 0.75F);
}

/// A gradient of two dimensions, which PowerSGD compresses.
struct FaultyMatrix : dptk::cuda::DeviceBuffer<float> {
    using DeviceBuffer::DeviceBuffer;
    [[nodiscard]] std::vector<std::size_t> shape() const { return {size() / 10, 10}; }
};

/// Steps with buffers and a hook, whose averages are clipped.
void train_with_hooks(ProcessGroup& group) {
    FaultyMatrix value(300), gradient(300);
    dptk::cuda::DeviceBuffer<float> bias(7), bias_gradient(7), mean(5);
    auto buffers = std::tie(mean);
    dptk::DistributedDataParallel ddp(group, std::tie(value, bias), std::tie(gradient, bias_gradient),
                                      {.bucket_cap_mb = 0.0005, .buffers = dptk::BufferSource(buffers)});
    ddp.set_comm_hook(dptk::hooks::bf16_compress(dptk::hooks::powersgd({.start_step = 1})));
    for (int step = 0; step < 3; ++step) {
        dptk::cuda::copy_to_device(std::vector<float>(300, 1.0F), gradient.span());
        dptk::cuda::copy_to_device(std::vector<float>(7, 0.0F), bias_gradient.span());
        ddp.begin_step(static_cast<std::size_t>(1 + group.rank()));
        ddp.synchronize();
        const bool finite = ddp.unscale(0.5);
        CHECK(finite);
        ddp.clip_grad_value(1.0);
        const double norm = ddp.clip_grad_norm(3.0).value();
        CHECK(norm > 3.0);
    }
    ddp.check();
    const std::vector<float> clipped = dptk::cuda::to_host(gradient.span());
    CHECK(clipped[299] == doctest::Approx(3 / std::sqrt(300.0)).epsilon(0.01));
}

/// Steps one by one, and then as a graph.
void train_in_graph(ProcessGroup& group) {
    const dptk::cuda::Stream stream;
    std::vector<dptk::cuda::DeviceBuffer<float>> values;
    std::vector<dptk::cuda::DeviceBuffer<float>> gradients;
    for (const std::size_t size : {100U, 3000U}) {
        values.emplace_back(size);
        gradients.push_back(
            dptk::cuda::to_device(std::vector<float>(size, static_cast<float>(1 + group.rank())), stream));
    }
    dptk::DistributedDataParallel ddp(group, values, gradients, {.bucket_cap_mb = 0.0005, .stream = stream});
    for (int step = 0; step < 2; ++step) ddp.synchronize();
    // Ranks capture in turns: the cleanup of a failed rank would break the other's capture.
    std::optional<dptk::cuda::Graph> graph;
    group.barrier();
    for (int turn = 0; turn < group.size(); ++turn) {
        if (group.rank() == turn) graph = dptk::cuda::Graph::capture(stream, [&] { ddp.synchronize(); });
        group.barrier();
    }
    for (int step = 0; step < 2; ++step) graph->launch(stream);
    ddp.check();
    const std::vector<float> average = dptk::cuda::to_host(gradients[1].span(), stream);
    CHECK(average[2999] == 1.5F);
}

/// Runs all phases; the fault occurs in one of them.
Outcome run(Phase struck, const std::optional<Fault>& fault) {
    const test::Machine machine(2);
    const test::LogRecorder log;
    Outcome outcome;
    std::map<std::string, int> before;
    const auto begin = std::chrono::steady_clock::now();
    const auto enter = [&](ProcessGroup& threads, Phase phase) {
        if (phase != struck) return;
        threads.barrier();
        if (threads.rank() == 1) {
            before = calls_of_rank_1();
            if (fault)
                cuda_double::fail({fault->function, 1}, before[fault->function] + fault->kth, fault->error);
        }
        threads.barrier();
    };
    const auto leave = [&](ProcessGroup& threads, Phase phase) {
        if (phase != struck || threads.rank() != 1) return;
        for (const auto& [function, calls] : calls_of_rank_1())
            outcome.calls[function] = calls - before[function];
    };
    const auto life = [&](ProcessGroup& threads) {
        enter(threads, Phase::init);
        std::optional<ProcessGroup> group = dptk::nccl_communicator(threads);
        leave(threads, Phase::init);
        enter(threads, Phase::collective);
        use(*group);
        leave(threads, Phase::collective);
        enter(threads, Phase::training);
        train(*group);
        leave(threads, Phase::training);
        enter(threads, Phase::hooks);
        train_with_hooks(*group);
        leave(threads, Phase::hooks);
        enter(threads, Phase::graph);
        train_in_graph(*group);
        leave(threads, Phase::graph);
        enter(threads, Phase::split);
        {
            ProcessGroup copy = group->duplicate();
            ProcessGroup part = copy.split(0, -copy.rank());
            use(part);
        }
        leave(threads, Phase::split);
        enter(threads, Phase::close);
        group.reset();
        leave(threads, Phase::close);
        threads.barrier();
    };
    try {
        test::on_devices(2,
                         [&](ProcessGroup& threads) {
                             const auto rank = static_cast<std::size_t>(threads.rank());
                             try {
                                 life(threads);
                             } catch (...) {
                                 outcome.endings[rank] =
                                     ending_of(std::current_exception(), outcome.texts[rank]);
                                 throw;
                             }
                         },
                         {.timeout = std::chrono::seconds(30)});
    } catch (const std::exception&) {
        // Each rank has recorded its exception.
    }
    outcome.duration =
        std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now() - begin);
    outcome.logged = log.lines();
    return outcome;
}

bool is_of_nccl(const std::string& function) {
    return function.starts_with("nccl") || function == "in the background";
}

/// The error of rank 1, if it throws.
Ending expected(const Fault& fault) {
    if (is_of_nccl(fault.function) && fault.error == ncclInvalidArgument) return Ending::argument;
    if (is_of_nccl(fault.function) && fault.error == ncclRemoteError) return Ending::lost;
    return Ending::backend;
}

/// Whether the watchdog calls the function.
bool may_fail_in_background(const std::string& function) {
    static const std::vector<std::string> asks = {"cudaSetDevice", "cudaEventQuery", "cudaGetDevice",
                                                  "ncclCommGetAsyncError", "in the background"};
    return std::ranges::find(asks, function) != asks.end();
}

void check_fault(Phase phase, const Fault& fault) {
    const Outcome outcome = run(phase, fault);
    const std::string what =
        dptk::detail::text(name_of(phase), ": call ", fault.kth, " of ", fault.function, " returns ",
                           fault.error, ": rank 0: ", outcome.texts[0], "; rank 1: ", outcome.texts[1]);
    // About 2 s if nothing else runs; the deadline of the calls is 30 s.
    CHECK_MESSAGE(outcome.duration < std::chrono::seconds(12), what);
    const bool thrown = outcome.endings[1] != Ending::well;
    // An error that all ranks know before they connect is the same on all of them.
    // A destructor does not throw: the next call throws its error.
    const bool after_close = outcome.endings[1] == Ending::lost && !outcome.logged.empty();
    // If there are several groups, an error that the watchdog has found in one group is also thrown by the
    // others. A training has a group of its own. On a slow machine, the watchdog may find an error between
    // two collectives.
    const bool of_watchdog = (phase == Phase::split || phase == Phase::training || phase == Phase::hooks ||
                              phase == Phase::graph || phase == Phase::collective) &&
                             outcome.endings[1] == Ending::lost && may_fail_in_background(fault.function);
    const bool right_type = outcome.endings[1] == expected(fault) || outcome.endings[1] == Ending::backend ||
                            after_close || of_watchdog;
    CHECK_MESSAGE((!thrown || right_type), what);
    const bool agreed = outcome.texts[0] == outcome.texts[1];
    CHECK_MESSAGE(outcome.endings[0] == (!thrown  ? Ending::well
                                         : agreed ? outcome.endings[1]
                                                  : Ending::lost),
                  what);
    static const std::vector<std::string> unnamed = {"ncclGroupStart", "ncclGroupEnd",
                                                     "ncclCommGetAsyncError", "in the background"};
    if (thrown && std::ranges::find(unnamed, fault.function) == unnamed.end())
        CHECK_MESSAGE(outcome.texts[1].find(fault.function) != std::string::npos, what);
    if (thrown) CHECK_MESSAGE(outcome.texts[0].find("rank 1") != std::string::npos, what);
}

/// Whether a failure of the function is not reported, because it releases a resource that is no longer
/// used.
bool may_fail_in_silence(const std::string& function) {
    static const std::vector<std::string> ends = {
        "cudaEventDestroy",     "cudaStreamDestroy",  "cudaFree",       "cudaFreeHost",
        "cudaFreeAsync",        "cudaMemPoolDestroy", "ncclMemFree",    "ncclCommDeregister",
        "cudaGraphExecDestroy", "cudaSetDevice",      "cudaEventQuery", "cudaGetDevice"};
    return std::ranges::find(ends, function) != ends.end();
}

}  // namespace

TEST_CASE("each call that fails, in each phase, is an error of all ranks within seconds") {
    for (const Phase phase : all_phases) {
        const Outcome clean = run(phase, std::nullopt);
        REQUIRE(clean.endings == std::vector(2, Ending::well));
        REQUIRE(clean.logged.empty());
        REQUIRE(clean.calls.size() > 2);
        for (const auto& [function, calls] : clean.calls) {
            if (calls == 0) continue;
            const std::vector<int> errors = is_of_nccl(function)
                                                ? std::vector<int>{ncclSystemError, ncclRemoteError}
                                                : std::vector<int>{cudaErrorMemoryAllocation};
            for (const int error : errors) {
                CAPTURE(function);
                check_fault(phase, {function, 1, error});
                if (calls > 1) check_fault(phase, {function, calls, error});
            }
        }
    }
}

TEST_CASE("an argument that NCCL refuses is an ArgumentError") {
    check_fault(Phase::collective, {"ncclAllReduce", 1, ncclInvalidArgument});
    const Outcome outcome = run(Phase::collective, Fault{"ncclAllReduce", 1, ncclInvalidArgument});
    CHECK(outcome.endings == std::vector{Ending::lost, Ending::argument});
}

TEST_CASE("each failure is reported, unless the call releases a resource") {
    for (const Phase phase : all_phases) {
        for (const auto& [function, calls] : run(phase, std::nullopt).calls) {
            if (calls == 0 || may_fail_in_silence(function)) continue;
            const Outcome outcome =
                run(phase, Fault{function, 1,
                                 is_of_nccl(function) ? static_cast<int>(ncclSystemError)
                                                      : static_cast<int>(cudaErrorUnknown)});
            const bool is_reported = outcome.endings[1] != Ending::well || !outcome.logged.empty();
            CHECK_MESSAGE(is_reported, name_of(phase), ": ", function);
        }
    }
}
