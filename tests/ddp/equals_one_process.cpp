// Compares DDP with one process on the concatenated batch: gradients and parameters must be the same, and
// bitwise equal on all ranks.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "ddp/small_net.hpp"
#include "support/messages_only.hpp"
#include "support/ranks.hpp"

namespace {

using dptk::Ready;
using Options = dptk::DistributedDataParallelOptions;

constexpr double huge = 1e6;

/// Returns the largest difference between two sets of parameters, in units of T's epsilon.
template <class T>
double distance(const std::vector<std::vector<T>>& a, const std::vector<std::vector<T>>& b) {
    double largest = 0;
    for (std::size_t p = 0; p < a.size(); ++p) {
        for (std::size_t i = 0; i < a[p].size(); ++i) {
            largest = std::max(largest, static_cast<double>(std::abs(a[p][i] - b[p][i])));
        }
    }
    return largest / static_cast<double>(std::numeric_limits<T>::epsilon());
}

template <class T>
bool same_bits_on_all_ranks(dptk::ProcessGroup& group, const std::vector<std::vector<T>>& values) {
    std::vector<T> flat;
    for (const auto& value : values) flat.insert(flat.end(), value.begin(), value.end());
    std::vector<T> all(flat.size() * static_cast<std::size_t>(group.size()));
    group.all_gather(flat, all);
    for (std::size_t rank = 0; rank < static_cast<std::size_t>(group.size()); ++rank) {
        if (std::memcmp(&all[rank * flat.size()], flat.data(), flat.size() * sizeof(T)) != 0) return false;
    }
    return true;
}

/// Compares ten SGD steps of the DDP that `make(group, net, options)` returns with one process on the batches
/// of all ranks. `samples` are distributed without padding, so that the last batch is uneven and some ranks
/// may have no samples.
template <class T, class MakeDDP>
void train_and_compare(dptk::ProcessGroup& group, const Options& options, std::size_t samples,
                       MakeDDP&& make) {
    constexpr std::size_t batch_size = 3;
    constexpr double tolerance = 64;
    test::SmallNet<T> net(group.rank());  // values differ between ranks until DDP broadcasts rank 0's
    test::SmallNet<T> alone(0);
    auto ddp = make(group, net, options);
    const auto size = static_cast<std::size_t>(group.size());
    dptk::DistributedSampler sampler(samples, group, {.seed = 5, .padding = dptk::Padding::none});
    dptk::DistributedSampler all(samples, 1, 0, {.seed = 5});
    int step = 0;
    for (int epoch = 0; step < 10; ++epoch) {
        sampler.set_epoch(epoch);
        all.set_epoch(epoch);
        const dptk::BatchSampler all_batches(all, batch_size * size);
        std::size_t batch_index = 0;
        for (const std::span<const std::size_t> batch : dptk::BatchSampler(sampler, batch_size)) {
            alone.forward_backward(all_batches[batch_index++]);
            if (batch.empty()) {  // the contents of the memory must not count
                for (auto& gradient : net.gradients)
                    std::ranges::fill(gradient, std::numeric_limits<T>::quiet_NaN());
            }
            if (options.ready == Ready::marked) {
                ddp->begin_step(batch.size());
                net.forward_backward(batch);
                if (!batch.empty()) {
                    for (std::size_t i = ddp->parameters().size(); i-- > 0;) ddp->mark_ready(i);
                }
                ddp->synchronize();
            } else {
                net.forward_backward(batch);
                ddp->synchronize(batch.size());
            }
            CHECK(distance(net.gradients, alone.gradients) < tolerance);
            net.step(T{0.1F});
            alone.step(T{0.1F});
            CHECK(same_bits_on_all_ranks(group, net.gradients));
            ++step;
        }
    }
    CHECK(distance(net.values, alone.values) < tolerance);
    CHECK(same_bits_on_all_ranks(group, net.values));
}

template <class T>
auto values_and_gradients(dptk::ProcessGroup& group, test::SmallNet<T>& net, const Options& options) {
    return std::make_unique<dptk::DistributedDataParallel>(group, net.values, net.gradients, options);
}

template <class MakeDDP>
void train_with_all_options(MakeDDP&& make) {
    test::on_ranks([&](dptk::ProcessGroup& group) {
        for (const Ready ready : {Ready::at_synchronize, Ready::marked}) {
            train_and_compare<float>(group, {.ready = ready}, 29, make);
            train_and_compare<double>(group, {.bucket_cap_mb = test::one_byte, .ready = ready}, 29, make);
        }
    });
}

}  // namespace

TEST_CASE_TEMPLATE("ten steps equal one process on the concatenated batch", T, float, double) {
    test::on_ranks([](dptk::ProcessGroup& group) {
        for (const Ready ready : {Ready::at_synchronize, Ready::marked}) {
            for (const std::optional<double> cap :
                 {std::optional<double>(), std::optional(test::one_byte), std::optional(huge)}) {
                const Options options{.bucket_cap_mb = cap, .ready = ready};
                for (const std::size_t samples : {1U, 2U, 13U, 48U}) {  // of 1 or 2, most ranks get none
                    train_and_compare<T>(group, options, samples, values_and_gradients<T>);
                }
            }
        }
    });
}

TEST_CASE("a flat span of all parameters trains the same") {
    // DDP sees one parameter and the network four; they are copied before and after each step.
    test::on_ranks([](dptk::ProcessGroup& group) {
        test::SmallNet<double> net(0), alone(0);
        std::vector<double> value(10), gradient(10);
        dptk::DistributedDataParallel ddp(group, std::span(value), std::span(gradient));
        const std::vector<std::size_t> mine = {static_cast<std::size_t>(group.rank())};
        std::vector<std::size_t> all;
        for (int rank = 0; rank < group.size(); ++rank) all.push_back(static_cast<std::size_t>(rank));
        net.forward_backward(mine);
        alone.forward_backward(all);
        std::ranges::copy(net.gradients[2], gradient.begin());
        ddp.synchronize();
        for (std::size_t i = 0; i < 10; ++i)
            CHECK(gradient[i] == doctest::Approx(alone.gradients[2][i]).epsilon(1e-12));
    });
}

TEST_CASE("a range of pointers trains the same") {
    train_with_all_options([]<class T>(dptk::ProcessGroup& group, test::SmallNet<T>& net,
                                       const Options& options) {
        struct Ddp {
            std::vector<std::vector<T>*> values, gradients;
            std::unique_ptr<dptk::DistributedDataParallel> ddp;
            dptk::DistributedDataParallel* operator->() const { return ddp.get(); }
        };
        auto owner = std::make_unique<Ddp>();
        for (auto& value : net.values) owner->values.push_back(&value);
        for (auto& gradient : net.gradients) owner->gradients.push_back(&gradient);
        owner->ddp =
            std::make_unique<dptk::DistributedDataParallel>(group, owner->values, owner->gradients, options);
        struct Handle {
            std::unique_ptr<Ddp> owner;
            dptk::DistributedDataParallel* operator->() const { return owner->ddp.get(); }
        };
        return Handle{std::move(owner)};
    });
}

TEST_CASE("tuples of references train the same") {
    train_with_all_options([](dptk::ProcessGroup& group, auto& net, const Options& options) {
        auto& v = net.values;
        auto& g = net.gradients;
        return std::make_unique<dptk::DistributedDataParallel>(group, std::tie(v[0], v[1], v[2], v[3]),
                                                               std::tie(g[0], g[1], g[2], g[3]), options);
    });
}

TEST_CASE("pairs of value and gradient in a map train the same") {
    train_with_all_options(
        []<class T>(dptk::ProcessGroup& group, test::SmallNet<T>& net, const Options& options) {
            using Map = std::map<std::string, std::pair<std::span<T>, std::span<T>>>;
            struct Handle {
                std::unique_ptr<Map> map;
                std::unique_ptr<dptk::DistributedDataParallel> ddp;
                dptk::DistributedDataParallel* operator->() const { return ddp.get(); }
            };
            Handle handle{std::make_unique<Map>(), nullptr};
            const char* names[] = {"w1", "b1", "w2", "b2"};
            for (std::size_t i = 0; i < 4; ++i) (*handle.map)[names[i]] = {net.values[i], net.gradients[i]};
            handle.ddp = std::make_unique<dptk::DistributedDataParallel>(group, *handle.map, options);
            return handle;
        });
}

TEST_CASE("without sample counts all ranks have equal weights") {
    test::on_ranks([](dptk::ProcessGroup& group) {
        std::vector<float> value(3), gradient(3, static_cast<float>(group.rank() + 1));
        dptk::DistributedDataParallel ddp(group, value, gradient);
        ddp.synchronize();
        CHECK(gradient[0] == doctest::Approx((group.size() + 1) / 2.0));
    });
}

TEST_CASE("each dtype is sent in buckets of its own") {
    test::on_ranks([](dptk::ProcessGroup& group) {
        std::vector<float> f(3), df(3, static_cast<float>(group.rank()));
        std::vector<double> d(2), dd(2, static_cast<double>(group.rank()));
        dptk::DistributedDataParallel ddp(group, std::tie(f, d), std::tie(df, dd));
        ddp.synchronize();
        CHECK(df[2] == doctest::Approx((group.size() - 1) / 2.0));
        CHECK(dd[1] == doctest::Approx((group.size() - 1) / 2.0));
    });
}

TEST_CASE("gradients computed straight in the buckets need no copies") {
    test::on_ranks([](dptk::ProcessGroup& group) {
        struct Model {
            std::vector<double> value = std::vector<double>(10);
            std::vector<double> first_gradient = std::vector<double>(10);
            std::span<double> gradient = first_gradient;

            void for_each_parameter(dptk::ParameterSink& sink) { sink("p", value, gradient); }
        };
        for (const Ready ready : {Ready::at_synchronize, Ready::marked}) {
            Model model;
            dptk::DistributedDataParallel ddp(group, model, {.ready = ready});
            model.gradient = ddp.gradient_memory<double>(0);
            CHECK(reinterpret_cast<std::uintptr_t>(model.gradient.data()) % 64 == 0);
            for (int step = 0; step < 3; ++step) {
                ddp.begin_step(static_cast<std::size_t>(group.rank() + 1));
                std::ranges::fill(model.gradient, 6.0);
                if (ready == Ready::marked) ddp.mark_ready(0);
                ddp.synchronize();
                CHECK(model.gradient[9] == doctest::Approx(6.0));
            }
            CHECK_THROWS_AS(static_cast<void>(ddp.gradient_memory<float>(0)), dptk::ArgumentError);
            CHECK_THROWS_AS(static_cast<void>(ddp.gradient_memory<double>(1)), dptk::ArgumentError);
        }
    });
}

TEST_CASE("gradients may move to other memory between begin_step and synchronize") {
    test::on_ranks([](dptk::ProcessGroup& group) {
        std::vector<std::vector<double>> values = {{0, 0}}, gradients = {{0, 0}};
        dptk::DistributedDataParallel ddp(group, values, gradients);
        for (int step = 0; step < 3; ++step) {
            ddp.begin_step(1);
            gradients[0] = std::vector<double>{1.0 * group.rank(), 2.0};
            ddp.synchronize();
            CHECK(gradients[0][0] == doctest::Approx((group.size() - 1) / 2.0));
        }
    });
}

TEST_CASE("a cap beyond all memory puts all parameters into one bucket") {
    test::on_ranks([](dptk::ProcessGroup& group) {
        std::vector<std::vector<float>> values = {{1}, {2}}, gradients = {{3}, {4}};
        dptk::DistributedDataParallel ddp(group, values, gradients, {.bucket_cap_mb = 1e300});
        CHECK(ddp.gradient_memory<float>(0).data() - ddp.gradient_memory<float>(1).data() == 16);
        ddp.synchronize();
        CHECK(gradients[1][0] == 4);
    });
}

TEST_CASE("a parameter marked unused counts as zeros on its rank") {
    test::on_ranks([](dptk::ProcessGroup& group) {
        std::vector<std::vector<float>> values = {{0}, {0}}, gradients = {{1}, {1}};
        dptk::DistributedDataParallel ddp(group, values, gradients,
                                          {.bucket_cap_mb = test::one_byte, .ready = Ready::marked});
        ddp.mark_ready(1);
        if (group.rank() == 0) {
            ddp.mark_ready(0);
        } else {
            gradients[0][0] = std::numeric_limits<float>::quiet_NaN();
            ddp.mark_unused(0);
        }
        ddp.synchronize();
        CHECK(gradients[0][0] == doctest::Approx(1.0 / group.size()));
        CHECK(gradients[1][0] == doctest::Approx(1.0));
    });
}

TEST_CASE("parameters without elements are allowed beside others") {
    test::on_ranks([](dptk::ProcessGroup& group) {
        std::vector<std::vector<float>> empty = {{}, {1}, {}}, empty_gradients = {{}, {2}, {}};
        dptk::DistributedDataParallel ddp(group, empty, empty_gradients);
        ddp.synchronize(1);
        CHECK(empty_gradients[1][0] == 2);
    });
}

TEST_CASE("if the transport cannot duplicate a group, buckets are sent inside synchronize") {
    const dptk::detail::ThreadJob job(3, {});
    dptk::launch_threads(3, [&](const dptk::ProcessGroup& threads) {
        dptk::ProcessGroup group = dptk::BasicCommunicator(test::MessagesOnly(job, threads.rank()));
        for (const Ready ready : {Ready::at_synchronize, Ready::marked}) {
            train_and_compare<double>(group, {.bucket_cap_mb = test::one_byte, .ready = ready}, 13,
                                      values_and_gradients<double>);
        }
    });
}

TEST_CASE("equal sample counts give the same bits as no counts") {
    test::on_ranks([](dptk::ProcessGroup& group) {
        const auto average = [&](std::optional<std::size_t> samples) {
            std::vector<float> value(1000), gradient(1000);
            for (std::size_t i = 0; i < gradient.size(); ++i)
                gradient[i] = 1 / static_cast<float>(i + 1 + 7 * static_cast<std::size_t>(group.rank()));
            dptk::DistributedDataParallel ddp(group, value, gradient);
            if (samples) {
                ddp.synchronize(*samples);
            } else {
                ddp.synchronize();
            }
            return gradient;
        };
        CHECK(average(7) == average({}));
    });
}
