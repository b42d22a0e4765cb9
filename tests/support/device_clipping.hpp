// Checks gradient clipping and unscaling in device memory, on CUDA test doubles and on real GPUs.
#pragma once

#include <doctest/doctest.h>
#include <dptk/core/cuda.hpp>
#include <dptk/ddp/clip.hpp>
#include <dptk/ddp/distributed_data_parallel.hpp>
#include <dptk/ddp/loss_scaler.hpp>

#include <cmath>
#include <functional>
#include <limits>
#include <vector>

#include "support/device_gradients.hpp"

namespace test {

using dptk::DistributedDataParallel;
using dptk::ProcessGroup;

inline constexpr double infinite = std::numeric_limits<double>::infinity();

/// Sizes of the parameters. One is larger than the part that one kernel block processes, one is empty.
inline const std::vector<std::size_t> clipped_sizes = {5000, 1, 0, 300};

/// Two copies of the same averaged gradients: one on devices, one on the host.
template <class T>
struct Clipped {
    DeviceNet<T> net;
    std::vector<std::vector<T>> host_values;
    std::vector<std::vector<T>> host_gradients;
    DistributedDataParallel on_devices;
    DistributedDataParallel on_host;

    Clipped(ProcessGroup& group, const std::function<int(std::size_t)>& device_of)
        : net(clipped_sizes, device_of),
          host_values(make_host()),
          host_gradients(make_host()),
          on_devices(group, net.values, net.gradients),
          on_host(group, host_values, host_gradients) {}

    [[nodiscard]] static std::vector<std::vector<T>> make_host() {
        std::vector<std::vector<T>> all;
        for (const std::size_t size : clipped_sizes) all.emplace_back(size);
        return all;
    }

    /// Runs one step; element e of parameter p has the average element(p, e).
    void step(const std::function<float(std::size_t, std::size_t)>& element) {
        DeviceNet<T>::fill(net.gradients, element);
        for (std::size_t p = 0; p < host_gradients.size(); ++p) {
            for (std::size_t e = 0; e < host_gradients[p].size(); ++e)
                host_gradients[p][e] = static_cast<T>(element(p, e));
        }
        on_devices.synchronize();
        on_host.synchronize();
    }

    void check_equal() {
        constexpr double tolerance = sizeof(T) == 2 ? 0.01 : 1e-6;
        for (std::size_t p = 0; p < host_gradients.size(); ++p) {
            const std::vector<T> found = DeviceNet<T>::read(net.gradients[p]);
            for (std::size_t e = 0; e < found.size(); ++e) {
                const auto here = static_cast<double>(static_cast<float>(host_gradients[p][e]));
                const double error = std::abs(static_cast<double>(static_cast<float>(found[e])) - here);
                if (!(error <= tolerance * (1 + std::abs(here))))
                    FAIL("gradient ", p, " element ", e, ": ", static_cast<float>(found[e]), " is not ",
                         here);
            }
        }
    }
};

inline float clipped_element(std::size_t p, std::size_t e) {
    return std::sin(static_cast<float>(p * 7 + e)) * static_cast<float>(p + 1);
}

template <class T>
void check_clipping(ProcessGroup& group, const std::function<int(std::size_t)>& device_of) {
    Clipped<T> both(group, device_of);
    const double tolerance = sizeof(T) == 2 ? 0.01 : 1e-6;
    for (const double norm_type : {2.0, 1.0, 3.5, infinite}) {
        for (const double max_norm : {0.25, 1e6, 0.0}) {
            CAPTURE(norm_type);
            CAPTURE(max_norm);
            both.step(clipped_element);
            const dptk::GradientNorm norm = both.on_devices.clip_grad_norm(max_norm, norm_type);
            const double expected = both.on_host.clip_grad_norm(max_norm, norm_type).value();
            CHECK(norm.value() == doctest::Approx(expected).epsilon(tolerance));
            CHECK(expected > 1);
            both.check_equal();
        }
    }
    both.step(clipped_element);
    both.on_devices.clip_grad_value(0.5);
    both.on_host.clip_grad_value(0.5);
    both.check_equal();
    CHECK(static_cast<float>(DeviceNet<T>::read(both.net.gradients[3])[2]) == -0.5F);
    CHECK_THROWS_AS(both.on_devices.clip_grad_norm(1, 0.5), dptk::ArgumentError);
    both.on_devices.begin_step();
    CHECK_THROWS_AS(both.on_devices.clip_grad_value(1), dptk::ArgumentError);
    both.on_devices.synchronize();
}

/// Checks that clipping does not hide infinite and NaN gradients: the norm is not finite, and the element
/// becomes NaN.
inline void check_clipping_of_nonfinite(ProcessGroup& group, int device) {
    Clipped<float> both(group, [=](std::size_t) { return device; });
    for (const float bad : {std::numeric_limits<float>::infinity(), std::nanf("")}) {
        for (const double norm_type : {2.0, infinite}) {
            both.step([&](std::size_t p, std::size_t e) { return p == 0 && e == 4999 ? bad : 1.0F; });
            CHECK_FALSE(std::isfinite(both.on_devices.clip_grad_norm(1, norm_type).value()));
            CHECK(std::isnan(DeviceNet<float>::read(both.net.gradients[0])[4999]));
        }
    }
}

inline void check_loss_scaler(ProcessGroup& group, int device) {
    Clipped<float> both(group, [=](std::size_t) { return device; });
    const dptk::LossScaler scaler({.init_scale = 8});
    both.step([](std::size_t p, std::size_t e) { return 8 * clipped_element(p, e); });
    CHECK(scaler.unscale(both.on_devices));
    CHECK(scaler.unscale(both.on_host));
    both.check_equal();
    CHECK(DeviceNet<float>::read(both.net.gradients[3])[1] ==
          doctest::Approx(static_cast<double>(clipped_element(3, 1))));

    // A gradient overflows after averaging, on one rank only.
    both.step(clipped_element);
    if (group.rank() == group.size() - 1) {
        std::vector<float> overflowed(1, std::numeric_limits<float>::infinity());
        dptk::cuda::copy_to_device(overflowed, both.net.gradients[1].span());
    }
    CHECK_FALSE(scaler.unscale(both.on_devices));
    both.step(clipped_element);
    CHECK(scaler.unscale(both.on_devices));
}

}  // namespace test
