#include "all_reduce_test.hpp"

#include <dptk/comm/agreement.hpp>

#include <algorithm>
#include <chrono>

#include "statistics.hpp"

namespace info {

namespace {

using dptk::detail::text;

constexpr std::size_t smallest = 4, largest = std::size_t{64} << 20, growth = 4;
constexpr std::size_t fewest = 5, most = 1000;  // repetitions

class Stopwatch {
  public:
    [[nodiscard]] double seconds() const {
        return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count();
    }

  private:
    std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

/// The elapsed time of the slowest rank, the same number on all ranks, so that all decide identically.
[[nodiscard]] double agreed_seconds(dptk::ProcessGroup& group, const Stopwatch& watch) {
    return group.all_reduce_value(watch.seconds(), dptk::ReduceOp::max);
}

void check_sum(dptk::ProcessGroup& group, const dptk::Allocation<float>& data) {
    std::ranges::fill(data, static_cast<float>(group.rank() + 1));
    group.all_reduce(data);
    const float expected = static_cast<float>(group.size()) * static_cast<float>(group.size() + 1) / 2;
    const auto wrong = std::ranges::find_if(data, [&](float found) { return found != expected; });
    std::string problem;
    if (wrong != data.end()) {
        problem = text("all-reduce of ", data.size(), " floats over ", group.backend(), ": expected ",
                       expected, " at index ", wrong - data.begin(), ", got ", *wrong);
    }
    dptk::detail::check_no_problem<dptk::BackendError>(group, problem);
}

/// Times one all-reduce, after a barrier: without the barrier, the other ranks' times would include the wait
/// for a late rank.
[[nodiscard]] double time_one(dptk::ProcessGroup& group, const dptk::Allocation<float>& data) {
    group.barrier();
    const Stopwatch watch;
    group.all_reduce(data);
    return watch.seconds();
}

/// Repeats the all-reduce for about `budget` seconds, in blocks. After each block the ranks agree on whether
/// to continue.
[[nodiscard]] std::vector<double> time_many(dptk::ProcessGroup& group, const dptk::Allocation<float>& data,
                                            double budget) {
    const Stopwatch watch;
    std::vector<double> seconds;
    std::size_t block = fewest;
    while (seconds.size() < most) {
        for (std::size_t i = 0; i < block; ++i) seconds.push_back(time_one(group, data));
        const double elapsed = agreed_seconds(group, watch);
        if (elapsed >= budget) break;
        const double affordable = (budget - elapsed) / elapsed * static_cast<double>(seconds.size());
        block = static_cast<std::size_t>(std::clamp(affordable / 2, 1.0, 50.0));
    }
    return seconds;
}

[[nodiscard]] AllReduceResult measure(dptk::ProcessGroup& group, std::size_t bytes, double budget) {
    const dptk::Allocation<float> data = group.allocate<float>(bytes / sizeof(float));
    check_sum(group, data);
    std::ranges::fill(data, 0.0F);  // repeated sums of other values would overflow
    const std::vector<double> own = time_many(group, data, budget);
    const std::vector<double> medians = group.all_gather_value(median(own));
    const double ranks = static_cast<double>(group.size());
    AllReduceResult result;
    result.bytes = bytes;
    result.repetitions = own.size();
    result.seconds = median(medians);
    result.bytes_per_second = 2 * (ranks - 1) / ranks * static_cast<double>(bytes) / result.seconds;
    result.slowest = slowest_of(medians);
    return result;
}

}  // namespace

std::vector<AllReduceResult> run_all_reduce_test(
    dptk::ProcessGroup& group, Effort effort, const std::function<void(const AllReduceResult&)>& on_result) {
    const double budget = effort == Effort::quick ? 0.1 : 0.7;  // seconds for each size
    const double longest = effort == Effort::quick ? 1 : 5;     // seconds for one all-reduce
    std::vector<AllReduceResult> results;
    for (std::size_t bytes = smallest; bytes <= largest; bytes *= growth) {
        results.push_back(measure(group, bytes, budget));
        on_result(results.back());
        if (results.back().seconds * static_cast<double>(growth) > longest) break;
    }
    return results;
}

}  // namespace info
