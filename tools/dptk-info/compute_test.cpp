#include "compute_test.hpp"

#include <dptk/comm/agreement.hpp>
#include <dptk/nn/models.hpp>
#include <dptk/nn/network.hpp>
#ifdef DPTK_WITH_ONEDNN
#include <dptk/nn/cpu/backend.hpp>
#include <dptk/nn/cpu/threads.hpp>
#else
#include <dptk/nn/reference/backend.hpp>
#endif

#include <chrono>

#include "hosts.hpp"
#include "statistics.hpp"

namespace info {

namespace {

#ifdef DPTK_WITH_ONEDNN
using Backend = dptk::nn::Cpu;
constexpr const char* work = "convnet, 16 images of 3 x 32 x 32, forward, oneDNN";
constexpr int full_passes = 50, quick_passes = 10;

/// Sets the number of compute threads. Returns the number that is in effect.
int set_threads(int threads) {
    return dptk::nn::cpu::set_num_threads(threads) ? threads : 1;
}
#else
using Backend = dptk::nn::Reference<float>;
constexpr const char* work = "convnet, 16 images of 3 x 32 x 32, forward, plain loops";
constexpr int full_passes = 5, quick_passes = 2;

int set_threads(int) {
    return 1;
}
#endif

constexpr std::size_t samples = 16;

using Seconds = std::chrono::duration<double>;

/// The median time of `passes` forward passes, after one pass that is not measured.
[[nodiscard]] double time_passes(int passes) {
    dptk::nn::Network<Backend> net(dptk::nn::convnet({.input = {3, 32, 32}, .classes = 10}), 1);
    dptk::nn::Tensor<float> images({samples, 3, 32, 32});
    for (std::size_t i = 0; i < images.size(); ++i) images[i] = static_cast<float>(i % 256) / 255;
    static_cast<void>(net.forward(images));
    std::vector<double> seconds;
    for (int pass = 0; pass < passes; ++pass) {
        const auto begin = std::chrono::steady_clock::now();
        static_cast<void>(net.forward(images));
        seconds.push_back(Seconds(std::chrono::steady_clock::now() - begin).count());
    }
    return median(seconds);
}

}  // namespace

ComputeResult run_compute_test(dptk::ProcessGroup& group, const JobFacts& job, Effort effort) {
    const int threads = set_threads(share_of_cores(job, group.rank()));
    group.barrier();
    const double seconds = dptk::on_all_or_none(
        group, [&] { return time_passes(effort == Effort::quick ? quick_passes : full_passes); });
    ComputeResult result;
    result.work = work;
    result.seconds = group.all_gather_value(seconds);
    result.threads = group.all_gather_value(threads);
    result.slowest = slowest_of(result.seconds);
    return result;
}

}  // namespace info
