// Gradients in device memory, over NCCL and through the host, and models that span devices.
#include <dptk/ddp/data_parallel.hpp>
#include <dptk/ddp/hooks/compress.hpp>
#include <dptk/ddp/reproducible.hpp>
#include <dptk/ddp/sharded_optimizer.hpp>
#include <dptk/optim/sgd.hpp>

#include <cstdlib>
#include <string>
#include <vector>

#include "machine.hpp"
#include "support/device_gradients.hpp"
#include "support/ranks.hpp"

namespace {

using dptk::DistributedDataParallel;
using dptk::ProcessGroup;
using test::DeviceNet;

}  // namespace

TEST_CASE_TEMPLATE("gradients in device memory are averaged there", T, float, double, dptk::bfloat16) {
    for (const char* backend : {"nccl", "staged"}) {
        const test::DeviceBackend chosen(backend);
        for (const int ranks : {1, 2, 4}) {
            const test::Machine machine(ranks);
            test::on_devices(ranks, [](ProcessGroup& group) {
                test::check_gradients<T>(group, [&](std::size_t) { return group.rank(); });
            });
        }
    }
}

TEST_CASE("a model that spans devices: buckets stay on theirs") {
    for (const char* backend : {"nccl", "staged"}) {
        const test::DeviceBackend chosen(backend);
        for (const int ranks : {1, 2}) {
            const test::Machine machine(2 * ranks);
            test::on_devices(ranks, [](ProcessGroup& group) {
                const auto device_of = [&](std::size_t p) {
                    return 2 * group.rank() + static_cast<int>(p / 2);
                };
                test::check_gradients<float>(group, device_of);

                DeviceNet<float> net(test::gradient_sizes, device_of);
                DistributedDataParallel ddp(group, net.values, net.gradients);
                for (std::size_t p = 0; p < test::gradient_sizes.size(); ++p) {
                    const dptk::DeviceSpan<float> memory = ddp.gradient_memory_on_device<float>(p);
                    CHECK(memory.device().index == device_of(p));
                    CHECK(dptk::cuda::device_of(memory.data()) == memory.device());
                    CHECK(memory.size() == test::gradient_sizes[p]);
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
        DeviceNet<float> net(test::gradient_sizes, [&](std::size_t) { return group.rank(); });
        DeviceNet<float> elsewhere(test::gradient_sizes, [&](std::size_t) { return 2 + group.rank(); });
        CHECK(test::throws<dptk::ArgumentError>(
            text, [&] { DistributedDataParallel(group, net.values, elsewhere.gradients); },
            test::Agreed::yes));
        CHECK(test::contains(text, "parameter [0] is on cuda:0, but its gradient on cuda:2"));

        // Rank 1's model spans devices, and rank 0's does not.
        DeviceNet<float> other(test::gradient_sizes,
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
        DeviceNet<float>::fill(net.gradients, [&](std::size_t p, std::size_t e) {
            return test::gradient_element(group.rank(), p, e);
        });
        ddp.synchronize();
        CHECK(DeviceNet<float>::read(net.gradients[1])[0] ==
              test::average_gradient(test::Samples::none, 2, 1, 0));
    });
}

TEST_CASE("DataParallel over devices") {
    for (const char* backend : {"nccl", "staged"}) {
        const test::DeviceBackend chosen(backend);
        for (const int count : {1, 2, 4}) {
            const test::Machine machine(count);
            std::vector<DeviceNet<float>> nets;
            std::vector<dptk::ParameterSource> sources;
            for (int number = 0; number < count; ++number)
                nets.emplace_back(test::gradient_sizes, [&](std::size_t) { return number; });
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
                        return test::gradient_element(static_cast<int>(replica), p, e);
                    });
                });
                for (std::size_t p = 0; p < test::gradient_sizes.size(); ++p) {
                    const std::vector<float> found = DeviceNet<float>::read(nets[0].gradients[p]);
                    for (std::size_t e = 0; e < found.size(); ++e) {
                        double expected = 0;
                        for (int number = 0; number < count; ++number)
                            expected += weights[static_cast<std::size_t>(number)] *
                                        static_cast<double>(test::gradient_element(number, p, e));
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

    DeviceNet<float> net(test::gradient_sizes, [](std::size_t p) { return p == 2 ? 1 : 0; });
    std::vector<dptk::ParameterSource> spanning;
    spanning.emplace_back(net.values, net.gradients);
    CHECK(test::throws<dptk::ArgumentError>(text, [&] { dptk::DataParallel{std::move(spanning)}; }));
    CHECK(test::contains(text, "parameter [2] is on cuda:1, and the first on cuda:0"));
}
