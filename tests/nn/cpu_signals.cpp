// Signals while a network on oneDNN computes. oneDNN before 3.11.2 uses the stack pointer for an address in
// the heap, where a handler that runs on the interrupted stack overwrites the program's data.
#include <dlfcn.h>
#include <doctest/doctest.h>
#include <pthread.h>
#include <signal.h>
#include <sys/time.h>

#include <atomic>
#include <cstddef>
#include <cstring>
#include <mutex>
#include <string_view>
#include <vector>

#include "cpu_support.hpp"
#include "dptk/control/process/signal_delay.hpp"
#include "dptk/nn/cpu/threads.hpp"
#include "dptk/nn/custom_operation.hpp"
#include "dptk/nn/loss.hpp"
#include "dptk/optim/sgd.hpp"

using namespace dptk::nn;

namespace {

std::atomic<int> handled = 0;

/// Overwrites 4 KiB below the stack pointer, as the handlers of profilers do.
extern "C" void use_stack(int) {
    char frame[4096];
    std::memset(frame, 0x5A, sizeof frame);
    asm volatile("" : : "r"(frame) : "memory");
    ++handled;
}

/// Handles a signal with use_stack(), on the interrupted stack.
class Handler {
  public:
    explicit Handler(int signal) : signal_(signal) {
        handled = 0;
        struct sigaction action {};
        action.sa_handler = use_stack;
        action.sa_flags = SA_RESTART;
        ::sigaction(signal_, &action, &before_);
    }
    ~Handler() { ::sigaction(signal_, &before_, nullptr); }
    Handler(const Handler&) = delete;
    Handler& operator=(const Handler&) = delete;

  private:
    int signal_;
    struct sigaction before_ {};
};

/// Sends SIGPROF to the process each 300 microseconds in which it computes.
class ProfilingTimer {
  public:
    ProfilingTimer() { set({{0, 300}, {0, 300}}); }
    ~ProfilingTimer() { set({}); }
    ProfilingTimer(const ProfilingTimer&) = delete;
    ProfilingTimer& operator=(const ProfilingTimer&) = delete;

  private:
    static void set(const itimerval& interval) { ::setitimer(ITIMER_PROF, &interval, nullptr); }

    Handler handler_{SIGPROF};
};

/// Returns whether SIGUSR2 is blocked in each thread of the calling thread's OpenMP team.
std::vector<bool> blocked_in_team() {
    struct Result {
        std::mutex mutex;
        std::vector<bool> blocked;
    } result;
    const auto look = [](void* data) {
        auto& found = *static_cast<Result*>(data);
        sigset_t mask;
        ::pthread_sigmask(SIG_SETMASK, nullptr, &mask);
        const std::lock_guard lock(found.mutex);
        found.blocked.push_back(sigismember(&mask, SIGUSR2) == 1);
    };
    using Run = void(void (*)(void*), void*, unsigned, unsigned);
    const auto run = reinterpret_cast<Run*>(::dlsym(RTLD_DEFAULT, "GOMP_parallel"));
    run(look, &result, 0, 0);
    return result.blocked;
}

/// What the operation that looks at signals has found in the last forward.
int handled_in_forward = 0;
std::vector<bool> blocked_in_forward;

/// An identity that sends a signal to its thread.
struct Interrupted {
    static constexpr std::string_view name = "Interrupted";
    [[nodiscard]] Shape output_shape(InputShapes inputs) const { return inputs[0]; }
    template <class T>
    static void forward(const HostCall<T>& call) {
        ::pthread_kill(::pthread_self(), SIGUSR2);
        handled_in_forward = handled;
        blocked_in_forward = blocked_in_team();
        for (std::size_t i = 0; i < call.output.size(); ++i) call.output[i] = call.inputs[0][i];
    }
    template <class T>
    static void backward_inputs(const HostCall<T>& call) {
        for (std::size_t i = 0; i < call.output.size(); ++i)
            call.input_gradients[0][i] += call.output_gradient[i];
    }
};

/// Returns the parameters of a network after some steps of SGD.
std::vector<std::vector<float>> trained_parameters(const Graph& graph) {
    Network<Cpu> net(graph, 3);
    dptk::SGD<float> sgd({.lr = 0.01, .momentum = 0.9});
    const std::size_t n = 32;
    const auto input = testing::pattern_tensor<float>(1, testing::with_batch(n, net.input_shape()), 4);
    std::vector<int> labels;
    for (std::size_t i = 0; i < n; ++i) labels.push_back(static_cast<int>(i % net.output_shape()[0]));
    Tensor<float> gradient;
    for (int step = 0; step < 60; ++step) {
        softmax_cross_entropy(net.forward(input), labels, gradient);
        net.backward(gradient);
        std::size_t slot = 0;
        net.for_each_parameter([&](const dptk::ParameterRef& parameter) {
            sgd.step(slot++, {static_cast<float*>(parameter.value), parameter.count},
                     {static_cast<const float*>(parameter.gradient), parameter.count});
        });
    }
    std::vector<std::vector<float>> values;
    for (std::size_t i = 0; i < net.parameter_count(); ++i) values.push_back(net.parameter_values(i));
    return values;
}

}  // namespace

TEST_CASE("signals wait while a network on oneDNN computes, also in the threads that compute for it") {
    if (!dptk::SignalDelay::is_needed()) return;
    for (const int threads : {1, 2}) {
        CAPTURE(threads);
        REQUIRE(cpu::set_num_threads(threads));
        const std::vector<bool> before = blocked_in_team();
        const Handler handler(SIGUSR2);
        Network<Cpu> net(sequential({4, 4, 4}, {custom(Interrupted{})}), 1);
        const auto input = testing::pattern_tensor<float>(1, {2, 4, 4, 4});
        net.forward(input);
        CHECK(handled == 1);
        CHECK(handled_in_forward == 0);
        CHECK((blocked_in_forward == std::vector<bool>(static_cast<std::size_t>(threads), true)));
        CHECK((blocked_in_team() == before));

        // Also in backward, whose callback runs while the network computes.
        int handled_in_backward = -1;
        Network<Cpu> linear(sequential({8}, {Linear{4}}), 1);
        linear.forward(testing::pattern_tensor<float>(1, {2, 8}));
        linear.backward(testing::pattern_tensor<float>(1, {2, 4}), [&](std::size_t) {
            ::pthread_kill(::pthread_self(), SIGUSR2);
            handled_in_backward = handled;
        });
        CHECK(handled_in_backward == 1);
        CHECK(handled == 2);
        CHECK((blocked_in_team() == before));
    }
    REQUIRE(cpu::set_num_threads(1));
}

TEST_CASE("which versions of oneDNN use the stack pointer for other memory") {
    using dptk::detail::onednn_uses_stack_pointer;
    CHECK(onednn_uses_stack_pointer(2, 6, 3));
    CHECK(onednn_uses_stack_pointer(3, 7, 0));
    CHECK(onednn_uses_stack_pointer(3, 11, 1));
    CHECK(!onednn_uses_stack_pointer(3, 11, 2));
    CHECK(!onednn_uses_stack_pointer(3, 12, 0));
    CHECK(!onednn_uses_stack_pointer(4, 0, 0));
}

TEST_CASE("a timer signal does not change what a network on oneDNN computes") {
    const Graph graphs[] = {
        sequential({1, 28, 28}, {Flatten{}, Linear{256}, ReLU{}, Linear{128}, ReLU{}, Linear{10}}),
        sequential({3, 14, 14}, {Conv2d{.out_channels = 64, .padding = 1}, ReLU{}, MaxPool2d{2},
                                 Conv2d{.out_channels = 64, .padding = 1}, ReLU{}, Flatten{}, Linear{10}})};
    for (const int threads : {1, 2}) {
        REQUIRE(cpu::set_num_threads(threads));
        for (const Graph& graph : graphs) {
            const auto expected = trained_parameters(graph);
            const ProfilingTimer timer;
            bool same = true;
            for (int run = 0; run < 50 && (run == 0 || handled == 0); ++run)  // the timer may be late
                same = same && trained_parameters(graph) == expected;
            CHECK(same);
            CHECK(handled > 0);
        }
    }
    REQUIRE(cpu::set_num_threads(1));
}
