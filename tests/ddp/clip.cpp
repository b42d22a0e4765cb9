// Gradient clipping and loss scaling of averaged gradients.
#include <doctest/doctest.h>
#include <dptk/ddp/clip.hpp>
#include <dptk/ddp/loss_scaler.hpp>

#include <cmath>
#include <limits>
#include <tuple>
#include <vector>

#include "ddp/small_net.hpp"
#include "support/ranks.hpp"

namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

}  // namespace

TEST_CASE("gradients are clipped as PyTorch does in one process") {
    test::on_ranks([](dptk::ProcessGroup& group) {
        std::vector<float> a(2), da(2);
        std::vector<double> b(1), db(1);
        dptk::DistributedDataParallel ddp(group, std::tie(a, b), std::tie(da, db));
        const auto set = [&] {
            da = {3, -4};
            db = {12};
            ddp.synchronize();
        };
        set();
        CHECK(dptk::clip_grad_norm(ddp.parameters(), 26) == doctest::Approx(13));
        CHECK(db[0] == 12);
        CHECK(dptk::clip_grad_norm(ddp.parameters(), 1.3) == doctest::Approx(13));
        CHECK(da[1] == doctest::Approx(-0.4));
        CHECK(db[0] == doctest::Approx(1.2));
        set();
        CHECK(dptk::clip_grad_norm(ddp.parameters(), 9.5, 1) == doctest::Approx(19));
        CHECK(da[0] == doctest::Approx(1.5));
        set();
        CHECK(dptk::clip_grad_norm(ddp.parameters(), 6, infinity) == doctest::Approx(12));
        CHECK(da[0] == doctest::Approx(1.5));
        set();
        dptk::clip_grad_value(ddp.parameters(), 3.5);
        CHECK(da == std::vector<float>{3, -3.5F});
        CHECK(db[0] == 3.5);
        CHECK_THROWS_AS(dptk::clip_grad_norm(ddp.parameters(), 1, 0.5), dptk::ArgumentError);
    });
}

TEST_CASE("gradients whose norm is infinite or NaN are NaN after clipping") {
    std::vector<float> a(2), da(2);
    for (const double norm_type : {2.0, infinity}) {
        for (const float bad : {std::numeric_limits<float>::infinity(), std::nanf("")}) {
            dptk::launch_threads(1, [&](dptk::ProcessGroup& group) {
                dptk::DistributedDataParallel ddp(group, std::tie(a), std::tie(da));
                da = {1, bad};
                CHECK_FALSE(std::isfinite(dptk::clip_grad_norm(ddp.parameters(), 1, norm_type)));
                CHECK(std::isnan(da[0]));
                CHECK(std::isnan(da[1]));
                da = {3, 4};
                CHECK(ddp.clip_grad_norm(1).value() == doctest::Approx(5));
                CHECK(da[1] == doctest::Approx(0.8));
                ddp.clip_grad_value(0.5);
                CHECK(da == std::vector<float>{0.5F, 0.5F});
                CHECK(ddp.unscale(0.5));
                CHECK(da == std::vector<float>{1, 1});
            });
        }
    }
}

TEST_CASE("averaged gradients are clipped as those of one process on all samples") {
    test::on_ranks([](dptk::ProcessGroup& group) {
        test::SmallNet<double> net(0), alone(0);
        dptk::DistributedDataParallel ddp(group, net.values, net.gradients);
        dptk::DistributedDataParallel single(group, alone.values, alone.gradients);
        std::vector<std::size_t> all;
        for (std::size_t i = 0; i < 3 * static_cast<std::size_t>(group.size()); ++i) all.push_back(i);
        for (const double norm : {1.0, 2.0, infinity}) {
            net.forward_backward(
                std::span<const std::size_t>(all).subspan(3 * static_cast<std::size_t>(group.rank()), 3));
            ddp.synchronize();
            alone.forward_backward(all);
            CHECK(dptk::clip_grad_norm(ddp.parameters(), 0.05, norm) ==
                  doctest::Approx(dptk::clip_grad_norm(single.parameters(), 0.05, norm)).epsilon(1e-12));
            CHECK(test::largest_difference(net.gradients, alone.gradients) < 1e-14);
        }
        net.forward_backward(
            std::span<const std::size_t>(all).subspan(3 * static_cast<std::size_t>(group.rank()), 3));
        ddp.synchronize();
        alone.forward_backward(all);
        dptk::clip_grad_value(ddp.parameters(), 0.01);
        dptk::clip_grad_value(single.parameters(), 0.01);
        CHECK(test::largest_difference(net.gradients, alone.gradients) < 1e-14);
    });
}

TEST_CASE("a gradient that is not finite on one rank is reported on all ranks") {
    test::on_ranks([](dptk::ProcessGroup& group) {
        std::vector<float> value(2), gradient(2, 8.0F);
        dptk::DistributedDataParallel ddp(group, value, gradient);
        const dptk::LossScaler scaler({.init_scale = 8});
        ddp.synchronize();
        CHECK(scaler.unscale(group, ddp.parameters()));
        if (group.rank() == group.size() - 1) gradient[0] = static_cast<float>(infinity);
        CHECK_FALSE(scaler.unscale(group, ddp.parameters()));
    });
}

TEST_CASE("a gradient that overflows on one rank skips the step on all ranks, and the scale shrinks") {
    test::on_ranks([](dptk::ProcessGroup& group) {
        std::vector<float> value(2), gradient(2);
        dptk::DistributedDataParallel ddp(group, value, gradient);
        dptk::LossScaler scaler({.init_scale = 8, .growth_interval = 2});
        int taken = 0;
        for (int step = 0; step < 6; ++step) {
            const auto loss_scale = static_cast<float>(scaler.scale());
            gradient = {loss_scale, 2 * loss_scale};
            if (step == 3 && group.rank() == group.size() - 1) gradient[1] = static_cast<float>(infinity);
            ddp.synchronize();
            const bool finite = scaler.unscale(group, ddp.parameters());
            CHECK(finite == (step != 3));
            if (finite) {
                CHECK(gradient[1] == 2);
                ++taken;
            }
            scaler.update(finite);
        }
        CHECK(taken == 5);
        CHECK(scaler.scale() == 8 * 2 * 0.5 * 2);
        dptk::LossScaler other;
        other.load_state(scaler.state());
        CHECK(other.scale() == scaler.scale());
        CHECK_THROWS_AS(dptk::LossScaler({.growth_factor = 1}), dptk::ArgumentError);
    });
}
