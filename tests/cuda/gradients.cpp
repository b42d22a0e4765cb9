// Gradients in device memory, over NCCL and staged through the host, and models that span devices.
#include <dptk/ddp/data_parallel.hpp>
#include <dptk/ddp/hooks/compress.hpp>
#include <dptk/ddp/join.hpp>
#include <dptk/ddp/reproducible.hpp>
#include <dptk/ddp/sharded_optimizer.hpp>
#include <dptk/optim/sgd.hpp>

#include <barrier>
#include <chrono>
#include <string>
#include <vector>

#include "machine.hpp"
#include "support/device_gradients.hpp"
#include "support/ranks.hpp"

namespace {

using dptk::DistributedDataParallel;
using dptk::ProcessGroup;
using test::DeviceNet;

/// Returns how often the function was called so far.
[[nodiscard]] int calls_of(const cuda_double::Place& place) {
    for (const cuda_double::Count& count : cuda_double::counts())
        if (count.place == place) return count.calls;
    return 0;
}

/// Writes each rank's gradients, on the default stream.
template <class T>
void fill_gradients(ProcessGroup& group, DeviceNet<T>& net) {
    DeviceNet<T>::fill(net.gradients, [&](std::size_t p, std::size_t e) {
        return test::gradient_element(group.rank(), p, e);
    });
}

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

TEST_CASE("gradients in device memory may have another type than their values") {
    for (const char* backend : {"nccl", "staged"}) {
        const test::DeviceBackend chosen(backend);
        for (const int ranks : {1, 2, 4}) {
            const test::Machine machine(ranks);
            test::on_devices(ranks, [](ProcessGroup& group) {
                const auto own_device = [&](std::size_t) { return group.rank(); };
                test::check_gradients<float, dptk::bfloat16>(group, own_device);
                test::check_gradients<float, dptk::float16>(group, own_device);
                test::check_gradients<double, float>(group, own_device);
                test::check_f32_averages<dptk::bfloat16>(group, own_device);
                test::check_f32_averages<dptk::float16>(group, own_device);
            });
        }
    }
}

TEST_CASE(
    "gradients in device memory without dptk's kernels: the host waits, and errors are of their own step") {
    const dptk::detail::LaneMaker with_kernels = dptk::detail::registered_lane_maker().exchange(nullptr);
    for (const char* backend : {"nccl", "staged"}) {
        const test::DeviceBackend chosen(backend);
        for (const int ranks : {1, 2}) {
            const test::Machine machine(ranks);
            test::on_devices(ranks, [](ProcessGroup& group) {
                const auto own_device = [&](std::size_t) { return group.rank(); };
                test::check_gradients<float>(group, own_device);
                test::check_gradients<dptk::bfloat16>(group, own_device);
                DeviceNet<float> net(test::gradient_sizes, own_device);
                DistributedDataParallel ddp(group, net.values, net.gradients, {.ready = dptk::Ready::marked});
                ddp.mark_ready(3);
                CHECK_THROWS_AS(ddp.synchronize(), dptk::ArgumentError);
                ddp.check();
            });
        }
    }
    dptk::detail::registered_lane_maker() = with_kernels;
}

TEST_CASE("a mistake in the last step of a training on devices is logged") {
    const test::LogRecorder log;
    const test::Machine machine(1);
    test::on_devices(1, [](ProcessGroup& group) {
        DeviceNet<float> net(test::gradient_sizes, [](std::size_t) { return 0; });
        DistributedDataParallel ddp(group, net.values, net.gradients, {.ready = dptk::Ready::marked});
        ddp.mark_ready(3);
        ddp.synchronize();
    });
    REQUIRE(log.lines().size() == 1);
    CHECK(test::contains(log.lines()[0], "neither marked ready nor unused"));
}

TEST_CASE("a model that spans devices: a mistake is reported if the last bucket has changed its device") {
    const test::Machine machine(2);
    test::on_devices(1, [](ProcessGroup& group) {
        DeviceNet<float> net(test::gradient_sizes, [](std::size_t p) { return p == 0 ? 1 : 0; });
        DistributedDataParallel ddp(group, net.values, net.gradients,
                                    {.bucket_cap_mb = 1e-5, .ready = dptk::Ready::marked});
        for (const std::size_t p : {0U, 0U, 1U, 2U, 3U}) ddp.mark_ready(p);  // marks parameter 0 twice
        ddp.synchronize();
        CHECK_THROWS_AS(
            [&] {
                for (const std::size_t p : {0U, 1U, 2U, 3U}) ddp.mark_ready(p);
                ddp.synchronize();
            }(),
            dptk::ArgumentError);
        ddp.check();
    });
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

TEST_CASE("options with gradients in device memory: no_sync, unused parameters, bucket rebuild, joining") {
    for (const char* backend : {"nccl", "staged"}) {
        const test::DeviceBackend chosen(backend);
        const test::Machine machine(2);
        test::on_devices(2, [](ProcessGroup& group) {
            DeviceNet<float> net(test::gradient_sizes, [&](std::size_t) { return group.rank(); });
            const auto fill = [&] {
                DeviceNet<float>::fill(net.gradients, [&](std::size_t p, std::size_t e) {
                    return test::gradient_element(group.rank(), p, e);
                });
            };
            const auto first_of = [&](std::size_t p) { return DeviceNet<float>::read(net.gradients[p])[0]; };
            const auto own = [&](std::size_t p) { return test::gradient_element(group.rank(), p, 0); };
            const auto mean = [](std::size_t p) {
                return test::average_gradient(test::Samples::none, 2, p, 0);
            };
            DistributedDataParallel ddp(
                group, net.values, net.gradients,
                {.bucket_cap_mb = 1e-5, .ready = dptk::Ready::marked, .find_unused_parameters = true});
            fill();
            {
                const auto local = ddp.no_sync();
                for (std::size_t p = 0; p < 4; ++p) ddp.mark_ready(p);
                ddp.synchronize();
            }
            CHECK(first_of(3) == own(3));
            ddp.mark_ready(3);
            if (group.rank() == 0) ddp.mark_ready(1);
            ddp.mark_unused(2);
            ddp.synchronize();
            CHECK(first_of(3) == mean(3));
            CHECK(first_of(1) == test::gradient_element(0, 1, 0) / 2);
            CHECK(first_of(2) == own(2));
            CHECK(first_of(0) == own(0));

            DistributedDataParallel rebuilt(group, net.values, net.gradients,
                                            {.bucket_cap_mb = 1e-5, .ready = dptk::Ready::marked});
            for (int step = 0; step < 2; ++step) {
                fill();
                for (const std::size_t p : {1U, 3U, 0U, 2U}) rebuilt.mark_ready(p);
                rebuilt.synchronize();
                for (std::size_t p = 0; p < 4; ++p) CHECK(first_of(p) == mean(p));
            }
            CHECK(rebuilt.statistics().bucket_bytes == std::vector<std::size_t>{7 * 4, 300 * 4, 100 * 4, 4});

            DistributedDataParallel uneven(group, net.values, net.gradients);
            dptk::Join join(group);
            join.add(uneven);
            for (int step = 0; step < (group.rank() == 0 ? 1 : 3); ++step) {
                join.begin_step();
                fill();
                uneven.synchronize();
                CHECK(first_of(3) == (step == 0 ? mean(3) : own(3) / 2));
            }
            join.finish();
        });
    }
}

TEST_CASE("buffers in device memory are rank 0's from the beginning of each step on") {
    for (const char* backend : {"nccl", "staged"}) {
        const test::DeviceBackend chosen(backend);
        for (const int ranks : {1, 2, 4}) {
            const test::Machine machine(ranks);
            test::on_devices(ranks, [&](ProcessGroup& group) {
                DeviceNet<float> net(test::gradient_sizes, [&](std::size_t) { return group.rank(); });
                dptk::cuda::DeviceBuffer<double> means(33);
                dptk::cuda::DeviceBuffer<std::int32_t> counter(1);
                dptk::cuda::DeviceBuffer<float> more(7);
                const auto write = [&](int first) {
                    dptk::cuda::copy_to_device(std::vector<double>(33, first + group.rank()), means.span());
                    dptk::cuda::copy_to_device(std::vector<std::int32_t>{first + group.rank()},
                                               counter.span());
                    dptk::cuda::copy_to_device(
                        std::vector<float>(7, static_cast<float>(first + group.rank())), more.span());
                };
                const auto check = [&](int expected) {
                    CHECK(dptk::cuda::to_host(means.span()) == std::vector<double>(33, expected));
                    CHECK(dptk::cuda::to_host(counter.span()) == std::vector<std::int32_t>{expected});
                    CHECK(dptk::cuda::to_host(more.span()) ==
                          std::vector<float>(7, static_cast<float>(expected)));
                };
                auto buffers = std::tie(means, counter, more);
                write(10);
                DistributedDataParallel ddp(
                    group, net.values, net.gradients,
                    {.ready = dptk::Ready::marked, .buffers = dptk::BufferSource(buffers)});
                check(10);
                std::string text;
                for (int step = 0; step < 3; ++step) {
                    write(100 * step);
                    ddp.begin_step();
                    check(100 * step);
                    fill_gradients(group, net);
                    for (std::size_t p = 4; p-- > 0;) ddp.mark_ready(p);
                    ddp.synchronize();
                    CHECK(DeviceNet<float>::read(net.gradients[3])[0] ==
                          test::average_gradient(test::Samples::none, ranks, 3, 0));
                }
                ddp.check();

                // The last rank has a buffer of another size; its own buffers are not changed.
                const bool is_last = group.rank() + 1 == ranks;
                if (is_last) more = dptk::cuda::DeviceBuffer<float>(8);
                ddp.begin_step();
                for (std::size_t p = 4; p-- > 0;) ddp.mark_ready(p);
                ddp.synchronize();
                CHECK(test::throws<dptk::ArgumentError>(
                    text, [&] { ddp.check(); }, test::Agreed::yes));
                CHECK(test::contains(text, "the model's buffers have changed since construction"));
                if (is_last) more = dptk::cuda::DeviceBuffer<float>(7);
                write(7);
                ddp.begin_step();
                check(7);
                for (std::size_t p = 4; p-- > 0;) ddp.mark_ready(p);
                ddp.synchronize();
                ddp.check();
            });
        }
    }
}

TEST_CASE("a copy that fails on one rank ends the other ranks' step, if that rank continues") {
    for (const char* backend : {"nccl", "staged"}) {
        const test::DeviceBackend chosen(backend);
        const test::Machine machine(2);
        std::barrier both(2);
        test::on_devices(2, [&](ProcessGroup& group) {
            DeviceNet<float> net(test::gradient_sizes, [&](std::size_t) { return group.rank(); });
            DistributedDataParallel ddp(group, net.values, net.gradients,
                                        {.bucket_cap_mb = 1e-5, .ready = dptk::Ready::marked});
            ddp.begin_step();
            group.barrier();
            if (group.rank() == 1) {
                cuda_double::fail({"copy_kernel", 1}, calls_of({"copy_kernel", 1}) + 1, cudaErrorUnknown);
            }
            const auto step = [&] {
                for (std::size_t p = 4; p-- > 0;) ddp.mark_ready(p);
                ddp.synchronize();
            };
            const auto begin = std::chrono::steady_clock::now();
            std::string text;
            if (group.rank() == 1) {
                CHECK(test::throws<dptk::BackendError>(text, step));
            } else {
                CHECK(test::throws<dptk::PeerLostError>(text, step));
                CHECK(test::contains(text, "rank 1: copy_kernel"));
            }
            CHECK(std::chrono::steady_clock::now() - begin < std::chrono::seconds(10));
            both.arrive_and_wait();  // both ranks keep their groups until here
        });
    }
}

TEST_CASE("mistakes with gradients in device memory are errors of all ranks") {
    const test::Machine machine(4);
    test::on_devices(2, [](ProcessGroup& group) {
        std::string text;
        DeviceNet<float> net(test::gradient_sizes, [&](std::size_t) { return group.rank(); });
        DeviceNet<float> elsewhere(test::gradient_sizes, [&](std::size_t) { return 2 + group.rank(); });
        CHECK(test::throws<dptk::ArgumentError>(
            text, [&] { DistributedDataParallel(group, net.values, elsewhere.gradients); },
            test::Agreed::yes));
        CHECK(test::contains(text, "parameter [0] is on cuda:0, but its gradient is on cuda:2"));

        // Rank 1's model spans devices, and rank 0's does not.
        DeviceNet<float> other(test::gradient_sizes,
                               [&](std::size_t p) { return p == 2 ? 3 * group.rank() : group.rank(); });
        CHECK(test::throws<dptk::MismatchError>(
            text, [&] { DistributedDataParallel(group, other.values, other.gradients); }, test::Agreed::yes));
        CHECK(test::contains(text, "parameter [2] on device 1 of the model"));

        CHECK(test::throws<dptk::ArgumentError>(
            text, [&] { dptk::ReproducibleDataParallel(group, net.values, net.gradients, 2); },
            test::Agreed::yes));
        CHECK(test::contains(
            text, "ReproducibleDataParallel supports host memory only, but parameter [0] is on cuda:"));
        CHECK(test::throws<dptk::ArgumentError>(
            text,
            [&] { dptk::ShardedOptimizer(group, net.values, net.gradients, dptk::SGD<float>({.lr = 0.1})); },
            test::Agreed::yes));
        CHECK(test::contains(text, "a sharded optimizer supports host memory only"));

        std::vector<float> host_value(5), host_gradient(5);
        auto mixed_values = std::tie(host_value, net.values);
        auto mixed_gradients = std::tie(host_gradient, net.gradients);
        DistributedDataParallel mixed(group, mixed_values, mixed_gradients);
        CHECK(test::throws<dptk::ArgumentError>(
            text, [&] { mixed.set_comm_hook(dptk::hooks::fp16_compress()); }, test::Agreed::yes));
        CHECK(test::contains(text, "hooks require all gradients in host memory, or all in device"));
        const auto with_buffers = [&](auto& buffers) {
            return test::throws<dptk::ArgumentError>(
                text,
                [&] {
                    DistributedDataParallel(group, net.values, net.gradients,
                                            {.buffers = dptk::BufferSource(buffers)});
                },
                test::Agreed::yes);
        };
        dptk::cuda::DeviceBuffer<float> here(5);
        const dptk::cuda::DeviceScope on(2 + group.rank());
        dptk::cuda::DeviceBuffer<float> there(5);
        auto mixed_buffers = std::tie(host_value, here);
        CHECK(with_buffers(mixed_buffers));
        CHECK(test::contains(text, "buffers must be all in host memory or all in device memory"));
        auto buffers_elsewhere = std::tie(here, there);
        CHECK(with_buffers(buffers_elsewhere));
        CHECK(test::contains(text, "a buffer is on cuda:2: buffers in device memory require all gradients"));

        DistributedDataParallel ddp(group, net.values, net.gradients);
        DeviceNet<float>::fill(net.gradients, [&](std::size_t p, std::size_t e) {
            return test::gradient_element(group.rank(), p, e);
        });
        ddp.synchronize();
        CHECK(DeviceNet<float>::read(net.gradients[1])[0] ==
              test::average_gradient(test::Samples::none, 2, 1, 0));
    });
}

TEST_CASE("mistakes of a step on devices are thrown on all ranks at the end of the next, or by check()") {
    for (const char* backend : {"nccl", "staged"}) {
        const test::DeviceBackend chosen(backend);
        for (const int ranks : {1, 2, 4}) {
            const test::Machine machine(ranks);
            test::on_devices(ranks, [&](ProcessGroup& group) {
                std::string text;
                DeviceNet<float> net(test::gradient_sizes, [&](std::size_t) { return group.rank(); });
                DistributedDataParallel ddp(group, net.values, net.gradients,
                                            {.bucket_cap_mb = 1e-5, .ready = dptk::Ready::marked});
                const bool is_last = group.rank() + 1 == ranks;
                const auto step = [&](bool mistaken) {
                    fill_gradients(group, net);
                    for (std::size_t p = mistaken && is_last ? 1 : 0; p < 4; ++p) ddp.mark_ready(p);
                    ddp.synchronize();
                };
                const auto check_right = [&] {
                    for (std::size_t p = 0; p < 4; ++p)
                        CHECK(DeviceNet<float>::read(net.gradients[p])[0] ==
                              test::average_gradient(test::Samples::none, ranks, p, 0));
                };
                for (int turn = 0; turn < 2; ++turn) {
                    step(false);
                    step(true);
                    CHECK(test::throws<dptk::ArgumentError>(
                        text, [&] { step(false); }, test::Agreed::yes));
                    CHECK(test::contains(text, "gradient [0] was neither marked ready nor unused"));
                    check_right();
                    step(true);
                    CHECK(test::throws<dptk::ArgumentError>(
                        text, [&] { ddp.check(); }, test::Agreed::yes));
                    CHECK(test::contains(text, "gradient [0] was neither marked ready nor unused"));
                    step(false);
                    check_right();
                    ddp.check();
                }
                if (ranks == 1) return;
                if (is_last) ddp.begin_step(7);
                step(false);
                CHECK(test::throws<dptk::ArgumentError>(
                    text, [&] { ddp.check(); }, test::Agreed::yes));
                CHECK(test::contains(text, "rank 0: begins the step without a sample count"));
                CHECK(test::contains(text, dptk::detail::text("rank ", ranks - 1,
                                                              ": begins the step with a sample count of 7")));
                step(false);
                check_right();
                ddp.check();
            });
        }
    }
}

TEST_CASE_TEMPLATE("micro-batches are accumulated in device memory", T, float, double, dptk::bfloat16) {
    for (const char* backend : {"nccl", "staged"}) {
        const test::DeviceBackend chosen(backend);
        for (const int ranks : {1, 2, 4}) {
            const test::Machine machine(ranks);
            test::on_devices(ranks, [&](ProcessGroup& group) {
                DeviceNet<T> net(test::gradient_sizes, [&](std::size_t) { return group.rank(); });
                DistributedDataParallel ddp(group, net.values, net.gradients);
                const auto batch = [&](int micro) {
                    DeviceNet<T>::fill(net.gradients, [&](std::size_t p, std::size_t e) {
                        return test::gradient_element(group.rank() + micro, p, e);
                    });
                };
                for (int step = 0; step < 3; ++step) {
                    // 2 samples, 3 samples, and a number that depends on the rank in the step itself.
                    batch(0);
                    ddp.accumulate(2);
                    CHECK(static_cast<float>(DeviceNet<T>::read(net.gradients[3])[7]) == 0);
                    batch(1);
                    ddp.accumulate(3);
                    const auto own = static_cast<std::size_t>(step == 0 ? 0 : group.rank());
                    batch(2);
                    if (step == 0) ddp.synchronize();
                    if (step > 0) ddp.synchronize(own);
                    for (std::size_t p = 0; p < test::gradient_sizes.size(); ++p) {
                        double sum = 0;
                        double samples = 0;
                        for (int rank = 0; rank < ranks; ++rank) {
                            const double last = step == 0 ? 0 : rank;
                            const auto element = [&](int micro) {
                                return static_cast<double>(static_cast<float>(
                                    static_cast<T>(test::gradient_element(rank + micro, p, 0))));
                            };
                            sum += 2 * element(0) + 3 * element(1) + last * element(2);
                            samples += 5 + last;
                        }
                        const double found =
                            static_cast<double>(static_cast<float>(DeviceNet<T>::read(net.gradients[p])[0]));
                        const double tolerance = sizeof(T) == 2 ? 0.02 : 1e-5;
                        CHECK(std::abs(found - sum / samples) <= tolerance * (1 + sum / samples));
                    }
                }
                ddp.check();
            });
        }
    }
}

TEST_CASE("the host does not wait for a step on the device") {
    const test::Machine machine(2);
    test::on_devices(2, [&](ProcessGroup& group) {
        DeviceNet<float> net(test::gradient_sizes, [&](std::size_t) { return group.rank(); });
        DistributedDataParallel ddp(group, net.values, net.gradients,
                                    {.bucket_cap_mb = 1e-5, .ready = dptk::Ready::marked});
        fill_gradients(group, net);
        for (int step = 0; step < 4; ++step) {
            const std::vector<std::string> waits = {"cudaStreamSynchronize", "cudaDeviceSynchronize",
                                                    "cudaFree", "cudaMalloc"};
            std::vector<int> before;
            for (const std::string& function : waits) before.push_back(calls_of({function, group.rank()}));
            ddp.begin_step(3);
            for (std::size_t p = 4; p-- > 0;) ddp.mark_ready(p);
            ddp.synchronize();
            if (step < 2) continue;  // buckets are rebuilt after the first step
            for (std::size_t i = 0; i < waits.size(); ++i)
                CHECK_MESSAGE(calls_of({waits[i], group.rank()}) == before[i], waits[i]);
        }
        ddp.check();
        group.barrier();
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
                    { const dptk::cuda::DeviceScope elsewhere(0); }
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
                        if (!(std::abs(static_cast<double>(found[e]) - expected) <= 1e-4))
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

    // One replica is on a device that does not exist.
    std::vector<dptk::ParameterSource> nowhere;
    dptk::DeviceSpan<float> there(device_value.data(), 10, {dptk::DeviceType::cuda, 7});
    dptk::DeviceSpan<float> its_gradient(device_gradient.data(), 10, {dptk::DeviceType::cuda, 7});
    nowhere.emplace_back(device_value, device_gradient);
    nowhere.emplace_back(there, its_gradient);
    CHECK(test::throws<dptk::ArgumentError>(text, [&] { dptk::DataParallel{std::move(nowhere)}; }));
    CHECK(test::contains(text, "rank 1"));

    DeviceNet<float> net(test::gradient_sizes, [](std::size_t p) { return p == 2 ? 1 : 0; });
    std::vector<dptk::ParameterSource> spanning;
    spanning.emplace_back(net.values, net.gradients);
    CHECK(test::throws<dptk::ArgumentError>(text, [&] { dptk::DataParallel{std::move(spanning)}; }));
    CHECK(test::contains(text, "parameter [2] is on cuda:1, but the first parameter is on cuda:0"));
}
