// Thrust's pointers compiled by a C++ compiler, over the CUDA test double. Its vectors need kernels: see
// tests/cuda_device.
#include <doctest/doctest.h>
#include <dptk/core/cuda.hpp>
#include <dptk/ddp/distributed_data_parallel.hpp>

#include <vector>

#include "cuda/machine.hpp"

#if __has_include(<thrust/device_ptr.h>)

#include <dptk/adapters/thrust.hpp>

namespace {

/// The part of thrust::device_vector's interface that dptk uses.
class Vector {
  public:
    using value_type = float;

    explicit Vector(const std::vector<float>& elements) : memory_(dptk::cuda::to_device(elements)) {}

    [[nodiscard]] thrust::device_ptr<float> data() { return thrust::device_pointer_cast(memory_.data()); }
    [[nodiscard]] std::size_t size() const { return memory_.size(); }
    [[nodiscard]] std::vector<float> elements() { return dptk::cuda::to_host(memory_.span()); }

  private:
    dptk::cuda::DeviceBuffer<float> memory_;
};

}  // namespace

TEST_CASE("Thrust's vectors are parameters on the device of their memory") {
    const test::DeviceBackend chosen("staged");
    const test::Machine machine(2);
    test::on_devices(2, [](dptk::ProcessGroup& group) {
        const auto rank = static_cast<float>(group.rank());
        std::vector<Vector> values, gradients;
        for (const std::size_t size : {5U, 1U}) {
            values.emplace_back(std::vector<float>(size, rank));
            gradients.emplace_back(std::vector<float>(size, rank));
        }
        dptk::DistributedDataParallel ddp(group, values, gradients);
        CHECK(ddp.parameters()[0].device == dptk::Device{dptk::DeviceType::cuda, group.rank()});
        ddp.synchronize();
        CHECK(values[0].elements() == std::vector<float>(5, 0));
        CHECK(gradients[0].elements() == std::vector<float>(5, 0.5F));
        CHECK(gradients[1].elements() == std::vector<float>(1, 0.5F));
    });
}

#endif
