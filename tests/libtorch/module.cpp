// Tests DistributedDataParallel for libtorch modules, with one module per rank.
#include "libtorch/doctest_and_torch.hpp"

#include <dptk/adapters/libtorch.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include "support/ranks.hpp"

namespace {

using dptk::libtorch::DistributedDataParallel;
using torch::Tensor;

/// Returns distinct elements that are the same on each rank.
Tensor pattern(at::IntArrayRef shape, double seed) {
    Tensor out = torch::empty(shape, torch::kFloat);
    auto* element = out.data_ptr<float>();
    for (std::int64_t i = 0; i < out.numel(); ++i)
        element[i] = static_cast<float>(0.4 * std::sin(seed + 1.3 * static_cast<double>(i)));
    return out;
}

void fill(torch::nn::Module& module, double seed) {
    const torch::NoGradGuard no_grad;
    for (const Tensor& parameter : module.parameters())
        parameter.copy_(pattern(parameter.sizes(), seed += 1));
}

struct Net : torch::nn::Module {
    torch::nn::Linear a = register_module("a", torch::nn::Linear(3, 4));
    torch::nn::Linear b = register_module("b", torch::nn::Linear(4, 2));
    torch::nn::Linear spare = register_module("spare", torch::nn::Linear(4, 2));

    Tensor forward(const Tensor& x) { return b(torch::tanh(a(x))); }
    Tensor forward_spare(const Tensor& x) { return spare(torch::tanh(a(x))); }
};

/// Returns the loss of rank `rank`, whose gradients each rank can compute.
Tensor loss_of(Net& net, int rank, double step = 0) {
    const Tensor x = pattern({5, 3}, rank + 10 * step);
    return rank % 2 == 0 ? net.forward(x).square().mean()
                         : (net.forward(x) + net.forward_spare(x)).square().mean();
}

/// Computes the expected averages in one process, from the losses of all ranks.
std::vector<Tensor> expected(int ranks, double step = 0) {
    Net net;
    fill(net, 1);
    for (int rank = 0; rank < ranks; ++rank) (loss_of(net, rank, step) / ranks).backward();
    std::vector<Tensor> gradients;
    for (const Tensor& parameter : net.parameters()) gradients.push_back(parameter.grad());
    return gradients;
}

void check_gradients(const Net& net, const std::vector<Tensor>& expected) {
    const std::vector<Tensor> parameters = net.parameters();
    REQUIRE(parameters.size() == expected.size());
    for (std::size_t i = 0; i < expected.size(); ++i) {
        CAPTURE(i);
        REQUIRE(parameters[i].grad().defined() == expected[i].defined());
        if (expected[i].defined()) CHECK(torch::allclose(parameters[i].grad(), expected[i], 1e-5, 1e-7));
    }
}

void set_gradients_to_none(torch::nn::Module& module) {
    for (Tensor& parameter : module.parameters()) parameter.mutable_grad() = Tensor();
}

void set_gradients_to_zero(torch::nn::Module& module) {
    for (Tensor& parameter : module.parameters())
        if (parameter.grad().defined()) parameter.mutable_grad().detach_().zero_();
}

const dptk::DistributedDataParallelOptions unused{.bucket_cap_mb = 1e-6, .find_unused_parameters = true};

}  // namespace

TEST_CASE(
    "gradients are averaged over ranks as autograd computes them, none and zeroed, in and out of buckets") {
    test::on_ranks([](dptk::ProcessGroup& group) {
        for (const bool views : {false, true}) {
            Net net;
            fill(net, group.rank() + 1);  // all ranks get rank 0's values
            auto options = unused;
            options.gradient_as_bucket_view = views;
            DistributedDataParallel ddp(group, net, options);
            for (int step = 0; step < 5; ++step) {
                step % 2 == 0 ? set_gradients_to_none(net) : set_gradients_to_zero(net);
                loss_of(net, group.rank(), step).backward();
                ddp.synchronize();
                const bool is_used = group.size() > 1;
                auto gradients = expected(group.size(), step);
                if (!is_used && step % 2 == 1) gradients[4] = gradients[5] = Tensor();
                check_gradients(net, gradients);
            }
        }
    });
}

TEST_CASE("with gradient_as_bucket_view, gradients that are zeroed in place stay in their buckets") {
    test::on_ranks([](dptk::ProcessGroup& group) {
        torch::nn::Linear net(3, 2);
        std::vector<Tensor> gradients;
        {
            DistributedDataParallel ddp(group, *net, {.gradient_as_bucket_view = true});
            for (int step = 0; step < 3; ++step) {
                set_gradients_to_zero(*net);
                net(pattern({5, 3}, group.rank())).sum().backward();
                ddp.synchronize();
                CHECK(net->weight.grad().data_ptr() == ddp.gradient_buffer(0).data);
                CHECK(net->bias.grad().data_ptr() == ddp.gradient_buffer(1).data);
            }
            gradients = {net->weight.grad(), net->bias.grad()};
        }
        // The gradients keep the buckets' memory alive.
        CHECK(gradients[1].allclose(torch::full({2}, 5.0F)));
        net(pattern({5, 3}, 0)).sum().backward();
        CHECK(gradients[1].allclose(torch::full({2}, 10.0F)));
    });
}

TEST_CASE("a parameter that backward does not reach is an error of that step, on all ranks, with its name") {
    test::on_ranks([](dptk::ProcessGroup& group) {
        Net net;
        fill(net, 1);
        DistributedDataParallel ddp(group, net);
        std::string text;
        loss_of(net, group.rank() == 0 ? 0 : 1).backward();
        CHECK(test::throws<dptk::ArgumentError>(
            text, [&] { ddp.synchronize(); }, test::Agreed::yes));
        CHECK(test::contains(text, "gradient spare.bias was neither marked ready nor unused"));
        set_gradients_to_none(net);
        loss_of(net, 1).backward();
        CHECK_NOTHROW(ddp.synchronize());
    });
}

TEST_CASE(
    "gradients that were replaced, or that lie in another order than the values, are averaged all the same") {
    test::on_ranks([](dptk::ProcessGroup& group) {
        torch::nn::Conv2d net(torch::nn::Conv2dOptions(3, 4, 3).bias(false));
        net->to(torch::kFloat);
        net->weight.set_data(net->weight.contiguous(torch::MemoryFormat::ChannelsLast));
        fill(*net, 1);
        DistributedDataParallel ddp(group, *net);
        net->weight.mutable_grad() = torch::ones({4, 3, 3, 3});  // row-major
        net(torch::ones({1, 3, 3, 3}) * group.rank()).sum().backward();
        ddp.synchronize();
        const double mean = (group.size() - 1) / 2.0;
        CHECK(net->weight.grad().allclose(torch::full({4, 3, 3, 3}, mean + 1)));
        CHECK(net->weight.grad().strides() == net->weight.strides());
    });
}

TEST_CASE("sparse gradients become dense averages") {
    test::on_ranks([](dptk::ProcessGroup& group) {
        torch::nn::Embedding net(torch::nn::EmbeddingOptions(12, 2).sparse(true));
        DistributedDataParallel ddp(group, *net);
        net(torch::tensor({std::int64_t{group.rank()}, std::int64_t{11}})).sum().backward();
        ddp.synchronize();
        const Tensor gradient = net->weight.grad();
        CHECK(!gradient.is_sparse());
        CHECK(gradient[11][0].item<float>() == 1);
        CHECK(gradient[0][1].item<float>() == doctest::Approx(1.0 / group.size()));
    });
}

TEST_CASE("tied parameters are one; frozen ones are sent at construction only") {
    struct Tied : torch::nn::Module {
        Tensor weight = register_parameter("encoder", torch::ones({2, 2}));
        Tensor same = register_parameter("decoder", weight);
        Tensor scale = register_parameter("scale", torch::ones({2}), false);
        Tensor forward(const Tensor& x) { return x.mm(weight).mm(same) * scale; }
    };
    test::on_ranks([](dptk::ProcessGroup& group) {
        Tied net;
        fill(net, 1 + group.rank());
        DistributedDataParallel ddp(group, net);
        CHECK(ddp.parameters().size() == 2);
        std::vector<float> scale(2);
        if (group.rank() == 0) std::ranges::copy(dptk::libtorch::span_of<float>(net.scale), scale.begin());
        group.broadcast(scale, 0);
        CHECK(std::ranges::equal(dptk::libtorch::span_of<float>(net.scale), scale));
        // Autograd accumulates the gradients of both uses in one call.
        net.forward(torch::ones({1, 2}) * (group.rank() + 1)).sum().backward();
        Tensor sum = net.weight.grad().clone();
        ddp.synchronize();
        group.all_reduce(dptk::libtorch::span_of<float>(sum));
        CHECK(net.weight.grad().allclose(sum / group.size()));
        CHECK(!net.scale.grad().defined());
    });
}

TEST_CASE("buffers of all types are rank 0's from begin_step on") {
    test::on_ranks([](dptk::ProcessGroup& group) {
        torch::nn::BatchNorm1d net(2);
        DistributedDataParallel ddp(group, *net);
        net(pattern({4, 2}, group.rank())).sum().backward();
        ddp.synchronize();
        net->num_batches_tracked.add_(group.rank());
        ddp.begin_step();
        CHECK(net->num_batches_tracked.item<std::int64_t>() == 1);
        torch::nn::BatchNorm1d first(2);
        first(pattern({4, 2}, 0));
        CHECK(net->running_mean.allclose(first->running_mean));
        net(pattern({4, 2}, group.rank())).sum().backward();
        ddp.synchronize();
    });
}

TEST_CASE("backward may run in several threads at once") {
    test::on_ranks([](dptk::ProcessGroup& group) {
        Net net;
        fill(net, 1);
        DistributedDataParallel ddp(group, net, unused);
        for (int step = 0; step < 5; ++step) {
            set_gradients_to_none(net);
            ddp.begin_step();
            // Each thread has layers of its own, so the order of their gradients is undefined.
            const Tensor first = net.a(pattern({5, 3}, group.rank())).square().mean();
            const Tensor second = net.b(pattern({5, 4}, group.rank())).square().mean();
            std::thread other([&] { first.backward(); });
            second.backward();
            other.join();
            const auto mean_over_ranks = [&](const Tensor& gradient) {
                Tensor sum = gradient.clone();
                group.all_reduce(dptk::libtorch::span_of<float>(sum));
                return sum / group.size();
            };
            const Tensor a = mean_over_ranks(net.a->weight.grad());
            const Tensor b = mean_over_ranks(net.b->weight.grad());
            ddp.synchronize();
            CHECK(net.a->weight.grad().allclose(a));
            CHECK(net.b->weight.grad().allclose(b));
            CHECK(!net.spare->weight.grad().defined());
        }
    });
}

TEST_CASE("micro-batches add up: locally in no_sync, weighted by samples with accumulate") {
    test::on_ranks([](dptk::ProcessGroup& group) {
        torch::nn::Linear net(1, 1);
        DistributedDataParallel ddp(group, *net);
        const auto backward = [&](float x) { net(torch::full({1, 1}, x)).sum().backward(); };
        {
            const auto local = ddp.no_sync();
            backward(1);
        }
        backward(2);
        ddp.synchronize();
        CHECK(net->weight.grad().item<float>() == 3);

        for (const int samples : {1, 3}) {
            set_gradients_to_none(*net);
            {
                const auto local = ddp.no_sync();
                backward(static_cast<float>(samples));
            }
            ddp.accumulate(static_cast<std::size_t>(samples));
        }
        ddp.synchronize();
        CHECK(net->weight.grad().item<float>() == doctest::Approx((1 * 1 + 3 * 3) / 4.0));
    });
}

TEST_CASE("with sample counts, ranks are weighted by them") {
    test::on_ranks([](dptk::ProcessGroup& group) {
        torch::nn::Linear net(1, 1);
        DistributedDataParallel ddp(group, *net);
        const auto own = static_cast<std::size_t>(group.rank());
        ddp.begin_step(own + 1);
        net(torch::full({1, 1}, static_cast<float>(group.rank()))).sum().backward();
        ddp.synchronize();
        double sum = 0, samples = 0;
        for (int rank = 0; rank < group.size(); ++rank) {
            sum += rank * (rank + 1);
            samples += rank + 1;
        }
        CHECK(net->weight.grad().item<float>() == doctest::Approx(sum / samples));
    });
}

TEST_CASE("it may be moved, and a module outlives it") {
    test::on_ranks([](dptk::ProcessGroup& group) {
        torch::nn::Linear net(1, 1);
        {
            DistributedDataParallel first(group, *net);
            DistributedDataParallel ddp(std::move(first));
            net(torch::full({1, 1}, static_cast<float>(group.rank()))).sum().backward();
            ddp.synchronize();
            CHECK(net->weight.grad().item<float>() == doctest::Approx((group.size() - 1) / 2.0));
        }
        set_gradients_to_none(*net);
        net(torch::full({1, 1}, static_cast<float>(group.rank()))).sum().backward();
        CHECK(net->weight.grad().item<float>() == group.rank());
    });
}

TEST_CASE(
    "modules that differ between ranks, also in the order of their elements, are an error on all of them") {
    test::on_ranks([](dptk::ProcessGroup& group) {
        if (group.size() == 1) return;
        std::string text;
        torch::nn::Conv2d net(torch::nn::Conv2dOptions(2, 4, 3));
        if (group.rank() == 1)
            net->weight.set_data(net->weight.contiguous(torch::MemoryFormat::ChannelsLast));
        CHECK(test::throws<dptk::MismatchError>(
            text, [&] { const DistributedDataParallel ddp(group, *net); }, test::Agreed::yes));
        CHECK(test::contains(text, "weight"));

        torch::nn::Linear linear(2, group.rank() == 1 ? 3 : 2);
        CHECK(test::throws<dptk::MismatchError>(
            text, [&] { const DistributedDataParallel ddp(group, *linear); }, test::Agreed::yes));
    });
}

TEST_CASE("parameters with gaps, and tensors of another type than the span's, are refused") {
    test::on_ranks([](dptk::ProcessGroup& group) {
        torch::nn::Linear net(4, 4);
        if (group.rank() == 0) net->weight.set_data(torch::ones({4, 8}).narrow(1, 0, 4));
        std::string text;
        CHECK(test::throws<dptk::ArgumentError>(
            text, [&] { const DistributedDataParallel ddp(group, *net); }, test::Agreed::yes));
        CHECK(test::contains(text, "weight is sparse, or a view with gaps"));
    });
    std::string text;
    CHECK(test::throws<dptk::ArgumentError>(
        text, [] { static_cast<void>(dptk::libtorch::span_of<double>(torch::ones({2}))); }));
    CHECK(test::contains(text, "expected a contiguous tensor of f64 on cpu, got Float on cpu"));
}
