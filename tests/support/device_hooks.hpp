// Checks that communication hooks have the same results on gradients in device memory as in host memory, on
// CUDA test doubles and on real GPUs.
#pragma once

#include <doctest/doctest.h>
#include <dptk/core/cuda.hpp>
#include <dptk/core/cuda/detail/kernels.hpp>
#include <dptk/ddp/distributed_data_parallel.hpp>
#include <dptk/ddp/hooks/allreduce.hpp>
#include <dptk/ddp/hooks/compress.hpp>
#include <dptk/ddp/hooks/post_local_sgd.hpp>
#include <dptk/ddp/hooks/powersgd.hpp>

#include <cmath>
#include <functional>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "support/host_matrix.hpp"

namespace test {

using dptk::CommHook;
using dptk::DistributedDataParallel;
using dptk::HookBucket;
using dptk::ProcessGroup;
using dptk::Ready;

/// A two-dimensional parameter on the current device.
struct DeviceMatrix {
    std::vector<std::size_t> extents;
    dptk::cuda::DeviceBuffer<float> elements;

    DeviceMatrix(std::size_t rows, std::size_t columns) : extents{rows, columns}, elements(rows * columns) {}
    [[nodiscard]] const std::vector<std::size_t>& shape() const { return extents; }
    [[nodiscard]] float* data() { return elements.data(); }
    [[nodiscard]] std::size_t size() const { return elements.size(); }
    [[nodiscard]] dptk::Device device() const { return elements.device(); }
    void write(const std::vector<float>& from) { dptk::cuda::copy_to_device(from, elements.span()); }
    [[nodiscard]] std::vector<float> read() { return dptk::cuda::to_host(elements.span()); }
};

/// Options of a training with a hook.
struct HookedTraining {
    Ready ready = Ready::at_synchronize;
    bool counts_samples = false;
    bool accumulates = false;
    int steps = 5;
    int first_step = 0;
};

/// Returns element e of the gradient of parameter p in a step, on a rank.
inline float hooked_element(int rank, int step, std::size_t p, std::size_t e) {
    return std::sin(static_cast<float>(rank + 1) * 0.7F + static_cast<float>(p * 100 + e) +
                    0.1F * static_cast<float>(step));
}

/// Returns the averages of all steps.
template <class Matrix>
std::vector<float> hooked_postprocessing(ProcessGroup& group, const std::shared_ptr<CommHook>& hook,
                                         const HookedTraining& training) {
    Matrix a(12, 10), b(1, 7), c(8, 20), da(12, 10), db(1, 7), dc(8, 20);
    Matrix* const gradients[] = {&da, &db, &dc};
    DistributedDataParallel ddp(group, std::tie(a, b, c), std::tie(da, db, dc),
                                {.bucket_cap_mb = 0.0006, .ready = training.ready});
    ddp.set_comm_hook(hook);
    const auto fill = [&](int step) {
        for (std::size_t p = 0; p < 3; ++p) {
            std::vector<float> elements(gradients[p]->size());
            for (std::size_t e = 0; e < elements.size(); ++e)
                elements[e] = hooked_element(group.rank(), step, p, e);
            gradients[p]->write(elements);
        }
    };
    std::vector<float> all;
    for (int step = training.first_step; step < training.first_step + training.steps; ++step) {
        if (training.accumulates) {
            fill(step + 100);
            ddp.accumulate(static_cast<std::size_t>(step < 2 ? 0 : group.rank() + step));
        }
        fill(step);
        if (training.counts_samples) {
            ddp.begin_step(static_cast<std::size_t>(group.rank() + step + 1));
        } else {
            ddp.begin_step();
        }
        if (training.ready == Ready::marked) {
            for (std::size_t i = 3; i-- > 0;) ddp.mark_ready(i);
        }
        ddp.synchronize();
        for (Matrix* gradient : gradients) {
            const std::vector<float> elements = gradient->read();
            all.insert(all.end(), elements.begin(), elements.end());
        }
    }
    ddp.check();
    return all;
}

/// Returns a hook that doubles all gradients.
inline std::shared_ptr<CommHook> doubling_function() {
    return dptk::comm_hook([](ProcessGroup& group, HookBucket& bucket) {
        group.engine().run({.verb = dptk::Verb::all_reduce,
                            .input = bucket.elements,
                            .output = bucket.elements,
                            .stream = bucket.stream});
        if (!bucket.elements.on_device())
            return dptk::detail::scale(bucket.elements, bucket.elements.data, 2);
        CHECK(std::isnan(bucket.weight));
        const dptk::cuda::kernels::CopiedTensor all{bucket.elements.data, bucket.elements.data,
                                                    bucket.elements.count};
        dptk::cuda::kernels::copy_all({&all, 1}, {}, {.factor = 2}, bucket.stream);
    });
}

using MakeHook = std::function<std::shared_ptr<CommHook>(ProcessGroup&)>;

struct NamedHook {
    std::string name;
    MakeHook make;
    double tolerance = 1e-5;
};

inline const std::vector<NamedHook>& all_hooks() {
    namespace hooks = dptk::hooks;
    const auto in_halves = [](ProcessGroup& group) { return group.split(group.rank() % 2, group.rank()); };
    static const std::vector<NamedHook> all = {
        {"allreduce", [](ProcessGroup&) { return hooks::allreduce(); }},
        {"fp16", [](ProcessGroup&) { return hooks::fp16_compress(); }, 2e-3},
        {"bf16", [](ProcessGroup&) { return hooks::bf16_compress(); }, 2e-2},
        {"powersgd",
         [](ProcessGroup&) {
             return hooks::powersgd(
                 {.matrix_approximation_rank = 2, .start_step = 1, .min_compression_rate = 1});
         },
         1e-3},
        {"powersgd without memory",
         [](ProcessGroup&) {
             return hooks::powersgd({.start_step = 0,
                                     .min_compression_rate = 1,
                                     .use_error_feedback = false,
                                     .warm_start = false});
         },
         1e-3},
        {"powersgd in bf16",
         [](ProcessGroup&) {
             return hooks::bf16_compress(hooks::powersgd({.start_step = 2, .min_compression_rate = 1}));
         },
         5e-2},
        {"post_local_sgd",
         [=](ProcessGroup& group) { return hooks::post_local_sgd(in_halves(group), {.start_step = 2}); }},
        {"post_local_sgd without averages",
         [=](ProcessGroup& group) {
             return hooks::post_local_sgd(in_halves(group),
                                          {.start_step = 1, .post_local_gradient_allreduce = false});
         }},
        {"function", [](ProcessGroup&) { return doubling_function(); }},
    };
    return all;
}

inline void check_near(const std::vector<float>& found, const std::vector<float>& expected,
                       double tolerance) {
    REQUIRE(found.size() == expected.size());
    for (std::size_t i = 0; i < found.size(); ++i) {
        const double error = std::abs(static_cast<double>(found[i]) - static_cast<double>(expected[i]));
        if (!(error <= tolerance)) FAIL("element ", i, ": ", found[i], " is not ", expected[i]);
    }
}

/// Checks a hook with three kinds of steps.
inline void check_hook(ProcessGroup& group, const NamedHook& hook) {
    for (const HookedTraining& training :
         {HookedTraining{}, HookedTraining{.ready = Ready::marked, .counts_samples = true},
          HookedTraining{.counts_samples = true, .accumulates = true}}) {
        const std::vector<float> found =
            hooked_postprocessing<DeviceMatrix>(group, hook.make(group), training);
        check_near(found, hooked_postprocessing<HostMatrix>(group, hook.make(group), training),
                   hook.tolerance);
    }
}

}  // namespace test
