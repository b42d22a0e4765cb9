// Measures work that grows with the number of samples and parameters: the sample order of an epoch on one
// rank, with each Order of DistributedSampler, the bucket plan of a model with many parameters, and, for each
// parameter, a step of DistributedDataParallel that has nothing to send. Each output line has: name, value,
// unit.
//   plans [SAMPLES]
#include <dptk/data/distributed_sampler.hpp>
#include <dptk/ddp.hpp>
#include <dptk/ddp/bucket_plan.hpp>

#include <cstdio>
#include <cstdlib>
#include <vector>

#include "measure.hpp"

namespace {

/// Prevents the compiler from removing the computations.
volatile std::size_t sink = 0;

template <class Action>
double median_of(int rounds, Action&& action) {
    std::vector<double> times;
    for (int round = 0; round < rounds; ++round) times.push_back(bench::microseconds(action));
    return bench::median(times);
}

void measure_sampler(std::size_t samples, dptk::Order order, const char* name) {
    dptk::DistributedSampler sampler(samples, 2, 0, {.order = order});
    std::int64_t epoch = 0;
    const double us = median_of(5, [&] {
        sampler.set_epoch(++epoch);
        std::size_t sum = 0;
        for (const std::size_t index : sampler) sum += index;
        sink = sum;
    });
    std::printf("%s_%zu %.0f ms\n", name, samples, us / 1000);
}

void measure_computed_order() {
    constexpr std::size_t samples = 1'000'000'000'000;
    const double made = median_of(101, [] { sink = dptk::ComputedPermutation(samples, 7)[1]; });
    const dptk::ComputedPermutation order(samples, 7);
    constexpr std::size_t asked = 1'000'000;
    const double all = median_of(5, [&] {
        std::size_t sum = 0;
        for (std::size_t i = 0; i < asked; ++i) sum += order[i * 999'983];
        sink = sum;
    });
    std::printf("computed_order_made_%zu %.3f us\n", samples, made);
    std::printf("computed_order_index_%zu %.3f us\n", samples, all / static_cast<double>(asked));
}

void measure_bucket_plan(std::size_t parameters) {
    std::vector<dptk::PlannedParameter> planned;
    for (std::size_t i = 0; i < parameters; ++i)
        planned.push_back({1 + i * 7919 % 5000, dptk::DType::f32, {}});
    const std::vector<std::size_t> caps = {std::size_t{1} << 20, std::size_t{25} << 20};
    const double us = median_of(5, [&] { sink = dptk::plan_buckets(planned, caps).size(); });
    std::printf("bucket_plan_%zu %.1f ms\n", parameters, us / 1000);
}

void measure_step(std::size_t parameters, dptk::Ready ready, const char* name) {
    dptk::ProcessGroup group = dptk::init_process_group();
    std::vector<std::vector<float>> values(parameters, std::vector<float>(16));
    std::vector<std::vector<float>> gradients = values;
    dptk::DistributedDataParallel ddp(group, values, gradients, {.ready = ready});
    const double us = median_of(201, [&] {
        if (ready == dptk::Ready::marked) {
            ddp.begin_step();
            for (std::size_t i = parameters; i-- > 0;) ddp.mark_ready(i);
        }
        ddp.synchronize();
    });
    std::printf("%s_%zu %.1f ns\n", name, parameters, us * 1000 / static_cast<double>(parameters));
}

}  // namespace

int main(int argc, char** argv) {
    const std::size_t samples = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 20'000'000;
    measure_sampler(samples, dptk::Order::torch, "sampler_epoch");
    measure_sampler(samples, dptk::Order::computed, "sampler_epoch_computed");
    measure_computed_order();
    measure_bucket_plan(1'000'000);
    measure_step(10'000, dptk::Ready::at_synchronize, "step_parameter");
    measure_step(10'000, dptk::Ready::marked, "step_parameter_marked");
}
