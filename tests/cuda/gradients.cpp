// Gradients in device memory, over NCCL and through the host, and models that span devices.
#include <dptk/core/float16.hpp>
#include <dptk/ddp/data_parallel.hpp>
#include <dptk/ddp/hooks/compress.hpp>
#include <dptk/ddp/reproducible.hpp>
#include <dptk/ddp/sharded_optimizer.hpp>
#include <dptk/optim/sgd.hpp>

#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include "machine.hpp"
#include "support/ranks.hpp"

namespace {

using dptk::DistributedDataParallel;
using dptk::ProcessGroup;
using dptk::Ready;

/// For one test.
class DeviceBackend {
  public:
    explicit DeviceBackend(const char* name) { ::setenv("DPTK_DEVICE_BACKEND", name, 1); }
    ~DeviceBackend() { ::unsetenv("DPTK_DEVICE_BACKEND"); }
    DeviceBackend(const DeviceBackend&) = delete;
    DeviceBackend& operator=(const DeviceBackend&) = delete;
};

/// Parameters of these sizes, parameter p on device `device_of(p)`; values and gradients.
template <class T>
struct DeviceNet {
    std::vector<dptk::cuda::DeviceBuffer<T>> values;
    std::vector<dptk::cuda::DeviceBuffer<T>> gradients;

    DeviceNet(const std::vector<std::size_t>& sizes, const std::function<int(std::size_t)>& device_of) {
        for (std::size_t p = 0; p < sizes.size(); ++p) {
            const dptk::cuda::DeviceScope on(device_of(p));
            values.emplace_back(sizes[p]);
            gradients.emplace_back(sizes[p]);
        }
    }

    template <class F>
    static void fill(std::vector<dptk::cuda::DeviceBuffer<T>>& buffers, F&& f) {
        for (std::size_t p = 0; p < buffers.size(); ++p) {
            std::vector<T> elements;
            for (std::size_t e = 0; e < buffers[p].size(); ++e) elements.push_back(static_cast<T>(f(p, e)));
            const dptk::cuda::DeviceScope on(buffers[p].device().index);
            dptk::cuda::copy_to_device(elements, buffers[p].span());
        }
    }

    static std::vector<T> read(dptk::cuda::DeviceBuffer<T>& buffer) {
        const dptk::cuda::DeviceScope on(buffer.device().index);
        return dptk::cuda::to_host(buffer.span());
    }
};

const std::vector<std::size_t> sizes = {100, 7, 1, 300};

/// Gradient element e of parameter p on a rank, as all tests here have it.
float element(int rank, std::size_t p, std::size_t e) {
    return static_cast<float>(rank + 1) * static_cast<float>(p + 1) + static_cast<float>(e % 3);
}

enum class Samples { none, one_more_on_each, none_on_the_first };

std::size_t samples_of(Samples samples, int rank) {
    return static_cast<std::size_t>(samples == Samples::none_on_the_first ? rank : rank + 1);
}

float average(Samples samples, int ranks, std::size_t p, std::size_t e) {
    double sum = 0;
    double weights = 0;
    for (int rank = 0; rank < ranks; ++rank) {
        const double weight = samples == Samples::none ? 1 : static_cast<double>(samples_of(samples, rank));
        sum += weight * static_cast<double>(element(rank, p, e));
        weights += weight;
    }
    return static_cast<float>(weights == 0 ? 0 : sum / weights);
}

/// Three steps, whose gradients are the averages then.
template <class T>
void check_steps(ProcessGroup& group, DeviceNet<T>& net, Ready ready, Samples samples) {
    const bool last_bit_is_coarse = sizeof(T) == 2;
    DeviceNet<T>::fill(net.values, [&](std::size_t p, std::size_t) {
        return static_cast<float>(100 * group.rank()) + static_cast<float>(p);
    });
    DistributedDataParallel ddp(group, net.values, net.gradients, {.bucket_cap_mb = 0.0005, .ready = ready});
    for (std::size_t p = 0; p < net.values.size(); ++p)
        CHECK(DeviceNet<T>::read(net.values[p]) ==
              std::vector<T>(net.values[p].size(), static_cast<T>(static_cast<float>(p))));
    for (int step = 0; step < 3; ++step) {
        if (samples == Samples::none) {
            ddp.begin_step();
        } else {
            ddp.begin_step(samples_of(samples, group.rank()));
        }
        DeviceNet<T>::fill(net.gradients,
                           [&](std::size_t p, std::size_t e) { return element(group.rank(), p, e); });
        if (ready == Ready::marked) {
            for (std::size_t p = sizes.size(); p-- > 0;) ddp.mark_ready(p);
        }
        ddp.synchronize();
        for (std::size_t p = 0; p < sizes.size(); ++p) {
            const std::vector<T> found = DeviceNet<T>::read(net.gradients[p]);
            for (std::size_t e = 0; e < found.size(); ++e) {
                const float expected = average(samples, group.size(), p, e);
                const float error = std::abs(static_cast<float>(found[e]) - expected);
                if (error > (last_bit_is_coarse ? 0.02F : 1e-5F) * (1 + expected))
                    FAIL("gradient ", p, " element ", e, ": ", static_cast<float>(found[e]), " is not ",
                         expected);
            }
        }
    }
}

template <class T>
void check_all_ways(ProcessGroup& group, const std::function<int(std::size_t)>& device_of) {
    for (const Ready ready : {Ready::at_synchronize, Ready::marked}) {
        for (const Samples samples : {Samples::none, Samples::one_more_on_each, Samples::none_on_the_first}) {
            DeviceNet<T> net(sizes, device_of);
            check_steps(group, net, ready, samples);
        }
    }
}

}  // namespace

TEST_CASE_TEMPLATE("gradients in device memory are averaged there", T, float, double, dptk::bfloat16) {
    for (const char* backend : {"nccl", "staged"}) {
        const DeviceBackend chosen(backend);
        for (const int ranks : {1, 2, 4}) {
            const test::Machine machine(ranks);
            test::on_devices(ranks, [](ProcessGroup& group) {
                check_all_ways<T>(group, [&](std::size_t) { return group.rank(); });
            });
        }
    }
}

TEST_CASE("a model that spans devices: buckets stay on theirs") {
    for (const char* backend : {"nccl", "staged"}) {
        const DeviceBackend chosen(backend);
        for (const int ranks : {1, 2}) {
            const test::Machine machine(2 * ranks);
            test::on_devices(ranks, [](ProcessGroup& group) {
                const auto device_of = [&](std::size_t p) {
                    return 2 * group.rank() + static_cast<int>(p / 2);
                };
                check_all_ways<float>(group, device_of);

                DeviceNet<float> net(sizes, device_of);
                DistributedDataParallel ddp(group, net.values, net.gradients);
                for (std::size_t p = 0; p < sizes.size(); ++p) {
                    const dptk::DeviceSpan<float> memory = ddp.gradient_memory_on_device<float>(p);
                    CHECK(memory.device().index == device_of(p));
                    CHECK(dptk::cuda::device_of(memory.data()) == memory.device());
                    CHECK(memory.size() == sizes[p]);
                }
                group.barrier();
            });
        }
    }
}

TEST_CASE("a model that is on the host in part") {
    const test::Machine machine(2);
    test::on_devices(2, [](ProcessGroup& group) {
        std::vector<float> value(50), gradient(50, static_cast<float>(group.rank()));
        dptk::cuda::DeviceBuffer<float> device_value(20), device_gradient(20);
        dptk::cuda::copy_to_device(std::vector<float>(20, static_cast<float>(group.rank() * 10)),
                                   device_gradient.span());
        auto values = std::tie(value, device_value);
        auto gradients = std::tie(gradient, device_gradient);
        DistributedDataParallel ddp(group, values, gradients);
        ddp.synchronize();
        CHECK(gradient == std::vector<float>(50, 0.5F));
        CHECK(dptk::cuda::to_host(device_gradient.span()) == std::vector<float>(20, 5.0F));
        CHECK(ddp.statistics().bucket_bytes == std::vector<std::size_t>{20 * 4, 50 * 4});
        CHECK_THROWS_AS(static_cast<void>(ddp.gradient_memory<float>(1)), dptk::ArgumentError);
        CHECK_THROWS_AS(static_cast<void>(ddp.gradient_memory_on_device<float>(0)), dptk::ArgumentError);
    });
}

TEST_CASE("mistakes with gradients in device memory are told on all ranks") {
    const test::Machine machine(4);
    test::on_devices(2, [](ProcessGroup& group) {
        std::string text;
        DeviceNet<float> net(sizes, [&](std::size_t) { return group.rank(); });
        DeviceNet<float> elsewhere(sizes, [&](std::size_t) { return 2 + group.rank(); });
        CHECK(test::throws<dptk::ArgumentError>(
            text, [&] { DistributedDataParallel(group, net.values, elsewhere.gradients); },
            test::Agreed::yes));
        CHECK(test::contains(text, "parameter [0] is on cuda:0, but its gradient on cuda:2"));

        // Rank 1's model spans devices, and rank 0's does not.
        DeviceNet<float> other(sizes,
                               [&](std::size_t p) { return p == 2 ? 3 * group.rank() : group.rank(); });
        CHECK(test::throws<dptk::MismatchError>(
            text, [&] { DistributedDataParallel(group, other.values, other.gradients); }, test::Agreed::yes));
        CHECK(test::contains(text, "parameter [2] on device 1 of the model"));

        CHECK(test::throws<dptk::ArgumentError>(
            text, [&] { dptk::ReproducibleDataParallel(group, net.values, net.gradients, 2); },
            test::Agreed::yes));
        CHECK(test::contains(text,
                             "ReproducibleDataParallel is for host memory, and parameter [0] is on cuda:"));
        CHECK(test::throws<dptk::ArgumentError>(
            text,
            [&] { dptk::ShardedOptimizer(group, net.values, net.gradients, dptk::SGD<float>({.lr = 0.1})); },
            test::Agreed::yes));
        CHECK(test::contains(text, "a sharded optimizer is for host memory"));

        DistributedDataParallel ddp(group, net.values, net.gradients);
        CHECK(test::throws<dptk::ArgumentError>(
            text, [&] { ddp.set_comm_hook(dptk::hooks::fp16_compress()); }, test::Agreed::yes));
        CHECK(test::contains(text, "hooks are for gradients in host memory"));
        ddp.accumulate(3);
        CHECK(test::throws<dptk::ArgumentError>(
            text, [&] { ddp.synchronize(); }, test::Agreed::yes));
        CHECK(test::contains(text, "accumulate() is for host memory"));
        DeviceNet<float>::fill(net.gradients,
                               [&](std::size_t p, std::size_t e) { return element(group.rank(), p, e); });
        ddp.synchronize();
        CHECK(DeviceNet<float>::read(net.gradients[1])[0] == average(Samples::none, 2, 1, 0));
    });
}

TEST_CASE("DataParallel over devices") {
    for (const char* backend : {"nccl", "staged"}) {
        const DeviceBackend chosen(backend);
        for (const int count : {1, 2, 4}) {
            const test::Machine machine(count);
            std::vector<DeviceNet<float>> nets;
            std::vector<dptk::ParameterSource> sources;
            for (int number = 0; number < count; ++number)
                nets.emplace_back(sizes, [&](std::size_t) { return number; });
            for (DeviceNet<float>& net : nets) sources.emplace_back(net.values, net.gradients);
            DeviceNet<float>::fill(nets[0].values, [](std::size_t p, std::size_t e) {
                return static_cast<float>(p * 1000 + e);
            });
            dptk::DataParallel parallel(std::move(sources));
            for (const std::size_t samples : {8U, 6U, 1U}) {
                const std::vector<std::size_t> batch(samples);
                std::vector<double> weights(static_cast<std::size_t>(count));
                parallel.step(batch, [&](std::size_t replica, std::span<const std::size_t> part) {
                    CHECK(dptk::cuda::current_device() == static_cast<int>(replica));
                    CHECK(DeviceNet<float>::read(nets[replica].values[3])[7] == 3007);
                    weights[replica] = static_cast<double>(part.size()) / static_cast<double>(samples);
                    DeviceNet<float>::fill(nets[replica].gradients, [&](std::size_t p, std::size_t e) {
                        return element(static_cast<int>(replica), p, e);
                    });
                });
                for (std::size_t p = 0; p < sizes.size(); ++p) {
                    const std::vector<float> found = DeviceNet<float>::read(nets[0].gradients[p]);
                    for (std::size_t e = 0; e < found.size(); ++e) {
                        double expected = 0;
                        for (int number = 0; number < count; ++number)
                            expected += weights[static_cast<std::size_t>(number)] *
                                        static_cast<double>(element(number, p, e));
                        if (std::abs(static_cast<double>(found[e]) - expected) > 1e-4)
                            FAIL("gradient ", p, " element ", e, ": ", found[e], " is not ", expected);
                    }
                }
            }
        }
    }
}

TEST_CASE("replicas on the host and on a device, or on two, are refused") {
    const test::Machine machine(2);
    std::vector<float> value(10), gradient(10);
    dptk::cuda::DeviceBuffer<float> device_value(10), device_gradient(10);
    std::vector<dptk::ParameterSource> sources;
    sources.emplace_back(std::span(value), std::span(gradient));
    sources.emplace_back(device_value, device_gradient);
    std::string text;
    CHECK(test::throws<dptk::MismatchError>(text, [&] { dptk::DataParallel{std::move(sources)}; }));
    CHECK(test::contains(text, "on a device"));

    DeviceNet<float> net(sizes, [](std::size_t p) { return p == 2 ? 1 : 0; });
    std::vector<dptk::ParameterSource> spanning;
    spanning.emplace_back(net.values, net.gradients);
    CHECK(test::throws<dptk::ArgumentError>(text, [&] { dptk::DataParallel{std::move(spanning)}; }));
    CHECK(test::contains(text, "parameter [2] is on cuda:1, and the first on cuda:0"));
}
