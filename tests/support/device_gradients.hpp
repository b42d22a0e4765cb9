// Training steps whose gradients are in device memory, on CUDA test doubles and on real GPUs.
#pragma once

#include <doctest/doctest.h>
#include <dptk/core/cuda.hpp>
#include <dptk/core/float16.hpp>
#include <dptk/ddp/distributed_data_parallel.hpp>

#include <cmath>
#include <cstddef>
#include <functional>
#include <limits>
#include <utility>
#include <vector>

namespace test {

/// Parameters of the given sizes, with values of type T and gradients of type G. Parameter p is on device
/// `device_of(p)`.
template <class T, class G = T>
struct DeviceNet {
    std::vector<dptk::cuda::DeviceBuffer<T>> values;
    std::vector<dptk::cuda::DeviceBuffer<G>> gradients;

    DeviceNet(const std::vector<std::size_t>& sizes, const std::function<int(std::size_t)>& device_of) {
        for (std::size_t p = 0; p < sizes.size(); ++p) {
            const dptk::cuda::DeviceScope on(device_of(p));
            values.emplace_back(sizes[p]);
            gradients.emplace_back(sizes[p]);
        }
    }

    template <class E, class F>
    static void fill(std::vector<dptk::cuda::DeviceBuffer<E>>& buffers, F&& f) {
        for (std::size_t p = 0; p < buffers.size(); ++p) {
            std::vector<E> elements;
            for (std::size_t e = 0; e < buffers[p].size(); ++e) elements.push_back(static_cast<E>(f(p, e)));
            const dptk::cuda::DeviceScope on(buffers[p].device().index);
            dptk::cuda::copy_to_device(elements, buffers[p].span());
        }
    }

    template <class E>
    static std::vector<E> read(dptk::cuda::DeviceBuffer<E>& buffer) {
        const dptk::cuda::DeviceScope on(buffer.device().index);
        return dptk::cuda::to_host(buffer.span());
    }
};

/// The sizes of the parameters.
inline const std::vector<std::size_t> gradient_sizes = {100, 7, 1, 300};

/// Returns element e of the gradient of parameter p on a rank.
inline float gradient_element(int rank, std::size_t p, std::size_t e) {
    return static_cast<float>(rank + 1) * static_cast<float>(p + 1) + static_cast<float>(e % 3);
}

enum class Samples { none, one_more_on_each, none_on_the_first };

inline std::size_t samples_of(Samples samples, int rank) {
    return static_cast<std::size_t>(samples == Samples::none_on_the_first ? rank : rank + 1);
}

inline float average_gradient(Samples samples, int ranks, std::size_t p, std::size_t e) {
    double sum = 0;
    double weights = 0;
    for (int rank = 0; rank < ranks; ++rank) {
        const double weight = samples == Samples::none ? 1 : static_cast<double>(samples_of(samples, rank));
        sum += weight * static_cast<double>(gradient_element(rank, p, e));
        weights += weight;
    }
    return static_cast<float>(weights == 0 ? 0 : sum / weights);
}

/// Runs three steps and checks that the gradients are the averages.
template <class T, class G>
void check_steps(dptk::ProcessGroup& group, DeviceNet<T, G>& net, dptk::Ready ready, Samples samples) {
    const bool last_bit_is_coarse = sizeof(G) == 2;
    DeviceNet<T>::fill(net.values, [&](std::size_t p, std::size_t) {
        return static_cast<float>(100 * group.rank()) + static_cast<float>(p);
    });
    dptk::DistributedDataParallel ddp(group, net.values, net.gradients,
                                      {.bucket_cap_mb = 0.0005, .ready = ready});
    for (std::size_t p = 0; p < net.values.size(); ++p)
        CHECK(DeviceNet<T>::read(net.values[p]) ==
              std::vector<T>(net.values[p].size(), static_cast<T>(static_cast<float>(p))));
    for (int step = 0; step < 3; ++step) {
        if (samples == Samples::none) {
            ddp.begin_step();
        } else {
            ddp.begin_step(samples_of(samples, group.rank()));
        }
        const bool has_none = samples != Samples::none && samples_of(samples, group.rank()) == 0;
        DeviceNet<T>::fill(net.gradients, [&](std::size_t p, std::size_t e) {
            return has_none ? std::numeric_limits<float>::quiet_NaN() : gradient_element(group.rank(), p, e);
        });
        if (ready == dptk::Ready::marked) {
            for (std::size_t p = gradient_sizes.size(); p-- > 0;) ddp.mark_ready(p);
        }
        ddp.synchronize();
        for (std::size_t p = 0; p < gradient_sizes.size(); ++p) {
            const std::vector<G> found = DeviceNet<T>::read(net.gradients[p]);
            for (std::size_t e = 0; e < found.size(); ++e) {
                const float expected = average_gradient(samples, group.size(), p, e);
                const float error = std::abs(static_cast<float>(found[e]) - expected);
                if (!(error <= (last_bit_is_coarse ? 0.02F : 1e-5F) * (1 + expected)))
                    FAIL("gradient ", p, " element ", e, ": ", static_cast<float>(found[e]), " is not ",
                         expected);
            }
        }
    }
}

template <class T, class G = T>
void check_gradients(dptk::ProcessGroup& group, const std::function<int(std::size_t)>& device_of) {
    for (const dptk::Ready ready : {dptk::Ready::at_synchronize, dptk::Ready::marked}) {
        for (const Samples samples : {Samples::none, Samples::one_more_on_each, Samples::none_on_the_first}) {
            DeviceNet<T, G> net(gradient_sizes, device_of);
            check_steps(group, net, ready, samples);
        }
    }
}

/// Runs a step with 16-bit gradients and reduce_in_f32, and checks that the optimizer gets the averages in
/// f32. Needs dptk's kernels.
template <class G>
void check_f32_averages(dptk::ProcessGroup& group, const std::function<int(std::size_t)>& device_of) {
    DeviceNet<float, G> net(gradient_sizes, device_of);
    dptk::DistributedDataParallel ddp(group, net.values, net.gradients,
                                      {.bucket_cap_mb = 0.0005, .reduce_in_f32 = true});
    DeviceNet<float>::fill(net.gradients, [&](std::size_t p, std::size_t e) {
        return gradient_element(group.rank(), p, e);  // which G represents exactly
    });
    ddp.synchronize();
    ddp.check();
    for (std::size_t p = 0; p < gradient_sizes.size(); ++p) {
        const dptk::Buffer average = ddp.parameters()[p].gradient_buffer();
        REQUIRE(average.dtype == dptk::DType::f32);
        REQUIRE(average.device.index == device_of(p));
        const dptk::cuda::DeviceScope on(device_of(p));
        const std::vector<float> found = dptk::cuda::to_host(dptk::DeviceSpan<const float>(
            static_cast<const float*>(average.data), average.count, average.device));
        for (std::size_t e = 0; e < found.size(); ++e) {
            const float expected = average_gradient(Samples::none, group.size(), p, e);
            if (!(std::abs(found[e] - expected) <= 1e-6F * expected))
                FAIL("average ", p, " element ", e, ": ", found[e], " is not ", expected);
        }
    }
}

}  // namespace test
