// Predicts the duration of a training step on up to 1024 ranks. The layers' times are measured on this
// machine, with one thread. The time of each bucket's all-reduce is the virtual time of dptk's algorithms
// in a simulated network, in which each rank has its own link. Buckets are sent one after the other, each
// as soon as backward has filled it.
//   scaling [--quick]
#include <dptk/comm/algorithms/run.hpp>
#include <dptk/ddp/bucket_plan.hpp>
#include <dptk/train.hpp>
#include "simulated/simulated.hpp"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <ranges>
#include <string>
#include <utility>
#include <vector>

#include "measure.hpp"
#include "training.hpp"

namespace {

constexpr double latency_us = 20;
constexpr double gigabits_per_second = 25;

/// A bucket, and the time in microseconds since the start of the step at which backward has filled it.
struct TimedBucket {
    std::size_t bytes = 0;
    double full = 0;
};

struct MeasuredStep {
    std::vector<TimedBucket> buckets;
    /// Microseconds without communication: from the start of the step to the end of backward, and of the
    /// optimizer.
    double backward_end = 0;
    double optimizer = 0;
};

MeasuredStep measure_step(const dptk::nn::Graph& graph, std::size_t batch, int rounds) {
    bench::Training training(graph, batch);
    std::vector<dptk::ParameterRef> parameters;
    training.net.for_each_parameter([&](const dptk::ParameterRef& ref) { parameters.push_back(ref); });
    std::vector<std::vector<double>> ready(parameters.size());
    std::vector<double> ends, optimizer;
    for (int round = 0; round < rounds; ++round) {
        const auto begin = std::chrono::steady_clock::now();
        const auto now = [&] {
            return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin)
                .count();
        };
        static_cast<void>(dptk::nn::softmax_cross_entropy(training.net.forward(training.input),
                                                          training.labels, training.output_gradient));
        training.net.backward(training.output_gradient, [&](std::size_t i) { ready[i].push_back(now()); });
        ends.push_back(now());
        optimizer.push_back(bench::microseconds([&] { training.step(parameters); }));
    }

    // Buckets are planned as in DistributedDataParallel: in reverse order of the parameters.
    std::vector<dptk::PlannedParameter> planned;
    for (const dptk::ParameterRef& ref : parameters | std::views::reverse)
        planned.push_back({.count = ref.count});
    constexpr std::size_t mib = std::size_t{1} << 20;
    MeasuredStep step{
        .buckets = {}, .backward_end = bench::median(ends), .optimizer = bench::median(optimizer)};
    for (const dptk::Bucket& bucket : dptk::plan_buckets(planned, std::vector{mib, 25 * mib})) {
        TimedBucket timed;
        for (const std::size_t i : bucket.parameters) {
            timed.bytes += planned[i].count * sizeof(float);
            timed.full = std::max(timed.full, bench::median(ready[parameters.size() - 1 - i]));
        }
        step.buckets.push_back(timed);
    }
    return step;
}

/// Returns the microseconds of each bucket's all-reduce on `ranks` ranks.
std::vector<double> all_reduce_times(const std::vector<TimedBucket>& buckets, int ranks) {
    // Buffers and bandwidth are scaled down by 100, so that the times are the same and the buffers fit in
    // memory.
    constexpr double shrink = 100;
    const dptk::SimulatedNetwork network{
        .hosts = ranks,
        .between_hosts = {.latency = dptk::SimulatedSeconds(latency_us / 1e6),
                          .bytes_per_second = gigabits_per_second * 1e9 / 8 / shrink},
        .time = dptk::SimulatedTime::virtual_clock};
    std::vector<double> times(buckets.size());
    for (std::size_t b = 0; b < buckets.size(); ++b) {
        const auto count = static_cast<std::size_t>(static_cast<double>(buckets[b].bytes) / shrink / 4) + 1;
        const dptk::SimulatedSeconds end =
            dptk::launch_simulated(network, [&](dptk::ProcessGroup& group, dptk::SimulatedClock&) {
                std::vector<float> data(count);
                group.set_all_reduce_algorithm(dptk::algorithms::choose_all_reduce(buckets[b].bytes, ranks));
                group.all_reduce(data);
            });
        times[b] = end.count() * 1e6;
    }
    return times;
}

void predict(const std::string& name, const MeasuredStep& step, bool quick) {
    const double local = step.backward_end + step.optimizer;
    for (int ranks = 1; ranks <= 1024; ranks *= quick ? 4 : 2) {
        const std::vector<double> times = all_reduce_times(step.buckets, ranks);
        double end = 0;
        for (std::size_t b = 0; b < step.buckets.size(); ++b)
            end = std::max(end, step.buckets[b].full) + times[b];
        const double whole = std::max(end, step.backward_end) + step.optimizer;
        std::printf("scaling_%s_%d %.0f us | local %.0f us | %.3f\n", name.c_str(), ranks, whole, local,
                    local / whole);
        std::fflush(stdout);
    }
}

}  // namespace

int main(int argc, char** argv) {
    const bool quick = argc > 1 && std::strcmp(argv[1], "--quick") == 0;
#ifdef DPTK_WITH_ONEDNN
    dptk::nn::cpu::set_num_threads(1);
#endif
    std::printf("# one link of %g Gbit/s and %g µs per rank\n", gigabits_per_second, latency_us);
    using namespace dptk::nn;
    const ModelOptions digits{.input = {1, 28, 28}, .classes = 10};
    const Graph large =
        sequential(digits.input, {Flatten{}, Linear{2048}, ReLU{}, Linear{2048}, ReLU{}, Linear{10}});
    predict("mlp", measure_step(mlp(digits), 64, 51), quick);
    predict("mlp_large", measure_step(large, 64, 11), quick);
    predict("convnet", measure_step(convnet({.input = {3, 32, 32}, .classes = 10}), 32, 11), quick);
}
