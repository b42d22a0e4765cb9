// RAII owners of CUDA streams, events and memory.
#include <doctest/doctest.h>
#include <dptk/core/cuda.hpp>

#include <numeric>
#include <vector>

namespace cuda = dptk::cuda;

TEST_CASE("elements go to the device, from device to device, and back") {
    std::vector<int> numbers(100'000);
    std::iota(numbers.begin(), numbers.end(), 0);
    cuda::Stream stream;
    const auto there = cuda::to_device(numbers, stream);
    cuda::DeviceBuffer<int> copy(numbers.size());
    cuda::copy_on_device(there.span(), copy.span(), stream);
    cuda::PinnedBuffer<int> here(numbers.size());
    cuda::copy_to_host(copy.span(), here, stream);
    const cuda::Event copied(stream);
    copied.synchronize();
    CHECK(copied.ready());
    CHECK(std::equal(here.begin(), here.end(), numbers.begin()));
    CHECK(cuda::device_of(copy.data()) == copy.device());
    CHECK(cuda::device_of(here.data()) == dptk::Device{});
    CHECK(cuda::device_of(numbers.data()) == dptk::Device{});
    CHECK_THROWS_AS(static_cast<void>(cuda::device_span(numbers.data(), numbers.size())),
                    dptk::ArgumentError);
}

TEST_CASE("a stream waits for another one's event") {
    cuda::Stream first;
    cuda::Stream second(cuda::StreamPriority::high);
    cuda::DeviceBuffer<float> data(10'000'000);
    cuda::PinnedBuffer<float> ones(data.size());
    std::fill(ones.begin(), ones.end(), 1.0F);
    cuda::copy_to_device(ones, data.span(), first);
    cuda::Event(first).order_before(second);
    CHECK(cuda::to_host(data.span(), second)[data.size() - 1] == 1.0F);
}

TEST_CASE("devices are numbered from 0") {
    CHECK_THROWS_AS(cuda::set_device(-1), dptk::ArgumentError);
    CHECK_THROWS_AS(cuda::set_device(cuda::device_count()), dptk::ArgumentError);
    CHECK(cuda::local_device(cuda::device_count()) == 0);
    CHECK(cuda::bus_id(0).size() >= 7);
}

TEST_CASE("memory beyond the device's is a BackendError, and harms nothing") {
    CHECK_THROWS_AS(cuda::DeviceBuffer<double>(std::size_t{1} << 50), dptk::BackendError);
    CHECK(cuda::to_host(cuda::to_device(std::vector<int>{1, 2}).span()) == std::vector<int>{1, 2});
}
