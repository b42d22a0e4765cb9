// DataParallel: replicas in one process, each with a thread of its own.
#include <doctest/doctest.h>
#include <dptk/ddp/data_parallel.hpp>

#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <mutex>
#include <numeric>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "ddp/small_net.hpp"
#include "support/ranks.hpp"

namespace {

using dptk::DataParallel;
using Part = std::span<const std::size_t>;

/// A net with a for_each_parameter, in which DataParallel finds the parameters.
template <class T>
struct ReplicaNet : test::SmallNet<T> {
    using test::SmallNet<T>::SmallNet;

    template <class Sink>
    void for_each_parameter(Sink&& sink) {
        for (std::size_t p = 0; p < this->values.size(); ++p) sink(this->values[p], this->gradients[p]);
    }
};

template <class T>
std::vector<ReplicaNet<T>> make_replicas(int count) {
    std::vector<ReplicaNet<T>> replicas;
    for (int number = 0; number < count; ++number) replicas.emplace_back(number);  // with different values
    return replicas;
}

struct TiedModel {
    std::vector<float> value = {1}, gradient = {0};

    void for_each_parameter(dptk::ParameterSink& sink) {
        sink("encoder", value, gradient);
        sink("decoder", value, gradient);
    }
};

std::vector<std::size_t> batch_of(std::size_t step, std::size_t size) {
    std::vector<std::size_t> batch(size);
    std::iota(batch.begin(), batch.end(), step * 7);
    return batch;
}

}  // namespace

TEST_CASE_TEMPLATE("DataParallel equals DistributedDataParallel, bit by bit, and one process nearly", T,
                   float, double) {
    if (test::is_launched()) return;
    for (const int count : {1, 2, 3, 4, 8}) {
        // These sizes split evenly, unevenly, and so that some replicas get no samples.
        const std::vector<std::size_t> sizes = {8, 24, 11, 3, 1, 16};
        auto replicas = make_replicas<T>(count);
        DataParallel parallel(replicas);
        std::vector<std::vector<std::vector<T>>> averages;
        for (std::size_t step = 0; step < sizes.size(); ++step) {
            const std::vector<std::size_t> batch = batch_of(step, sizes[step]);
            const std::vector<std::size_t> shares = parallel.step(batch, [&](std::size_t replica, Part part) {
                replicas[replica].forward_backward(part);
                return part.size();
            });
            CHECK(shares.size() == std::min(sizes[step], static_cast<std::size_t>(count)));
            CHECK(std::accumulate(shares.begin(), shares.end(), std::size_t{0}) == sizes[step]);
            averages.push_back(replicas[0].gradients);
            replicas[0].step(static_cast<T>(0.1));
        }

        dptk::launch_threads(count, [&](dptk::ProcessGroup& group) {
            test::SmallNet<T> net(group.rank());
            dptk::DistributedDataParallel ddp(group, net.values, net.gradients);
            const auto ranks = static_cast<std::size_t>(group.size());
            const auto rank = static_cast<std::size_t>(group.rank());
            for (std::size_t step = 0; step < sizes.size(); ++step) {
                const std::vector<std::size_t> batch = batch_of(step, sizes[step]);
                const std::size_t longer = sizes[step] % ranks;
                const std::size_t count_of_rank = sizes[step] / ranks + (rank < longer ? 1 : 0);
                const std::size_t first = sizes[step] / ranks * rank + std::min(rank, longer);
                net.forward_backward(Part(batch).subspan(first, count_of_rank));
                ddp.synchronize(count_of_rank);
                if (rank == 0) CHECK(net.gradients == averages[step]);
                net.step(static_cast<T>(0.1));
            }
        });

        test::SmallNet<T> alone(0);
        for (std::size_t step = 0; step < sizes.size(); ++step) {
            alone.forward_backward(batch_of(step, sizes[step]));
            for (std::size_t p = 0; p < alone.gradients.size(); ++p) {
                for (std::size_t e = 0; e < alone.gradients[p].size(); ++e)
                    CHECK(alone.gradients[p][e] ==
                          doctest::Approx(averages[step][p][e]).epsilon(sizeof(T) == 4 ? 1e-4 : 1e-11));
            }
            alone.step(static_cast<T>(0.1));
        }
    }
}

TEST_CASE("replicas work on threads of their own, and side by side") {
    if (test::is_launched()) return;
    auto replicas = make_replicas<float>(3);
    DataParallel parallel(replicas);
    std::mutex mutex;
    std::condition_variable all_are_there;
    int there = 0;
    const auto threads = parallel.step(batch_of(0, 6), [&](std::size_t, Part) {
        std::unique_lock lock(mutex);
        ++there;
        all_are_there.notify_all();
        CHECK(all_are_there.wait_for(lock, std::chrono::seconds(60), [&] { return there == 3; }));
        return std::this_thread::get_id();
    });
    const std::set<std::thread::id> different(threads.begin(), threads.end());
    CHECK(different.size() == 3);
    CHECK_FALSE(different.contains(std::this_thread::get_id()));
}

TEST_CASE("an error in one replica is thrown, and the next step may begin") {
    if (test::is_launched()) return;
    auto replicas = make_replicas<float>(3);
    DataParallel parallel(replicas);
    const auto work = [&](std::size_t replica, Part part) { replicas[replica].forward_backward(part); };
    CHECK_THROWS_WITH_AS(parallel.step(batch_of(0, 6),
                                       [&](std::size_t replica, Part part) {
                                           work(replica, part);
                                           if (replica == 1)
                                               throw std::runtime_error("replica 1 has had enough");
                                       }),
                         "replica 1 has had enough", std::runtime_error);
    parallel.step(batch_of(0, 6), work);
    CHECK_THROWS_AS(parallel.step({}, work), dptk::ArgumentError);
    replicas[2].values[0].resize(1);
    replicas[2].gradients[0].resize(1);
    std::string text;
    CHECK(test::throws<dptk::ArgumentError>(text, [&] { parallel.step(batch_of(0, 6), work); }));
    CHECK(test::contains(text, "at construction"));
}

TEST_CASE("replicas that differ are refused") {
    if (test::is_launched()) return;
    auto replicas = make_replicas<float>(2);
    replicas[1].values[2].resize(9);
    replicas[1].gradients[2].resize(9);
    std::string text;
    CHECK(test::throws<dptk::MismatchError>(text, [&] { DataParallel{replicas}; }));
    CHECK(test::contains(text, "parameter [2]"));
    replicas[1].gradients[2].resize(8);
    CHECK(test::throws<dptk::ArgumentError>(text, [&] { DataParallel{replicas}; }));
    CHECK(test::contains(text, "but its gradient has 8"));
    std::vector<ReplicaNet<float>> none;
    CHECK_THROWS_AS(DataParallel{none}, dptk::ArgumentError);
}

TEST_CASE("a gradient that two parameters share is summed once") {
    if (test::is_launched()) return;
    std::vector<TiedModel> replicas(2);
    DataParallel parallel(replicas);
    DataParallel moved(std::move(parallel));
    moved.step(batch_of(0, 4),
               [&](std::size_t replica, Part) { replicas[replica].gradient = {replica == 0 ? 1.0F : 3.0F}; });
    CHECK(replicas[0].gradient[0] == 2);
}
