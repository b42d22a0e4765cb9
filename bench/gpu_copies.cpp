// Compares the copies of gradients into a bucket and out of it with a device-to-device copy of the same
// bytes.
//   gpu_copies
#include <dptk/core/cuda.hpp>
#include <dptk/core/cuda/detail/kernels.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <functional>
#include <utility>
#include <vector>

using namespace dptk;

namespace {

/// Returns the median GPU time of `run`. Its host time is hidden, since other runs are queued before it.
double median_seconds(const cuda::Stream& stream, const std::function<void()>& run) {
    cudaEvent_t begin = nullptr;
    cudaEvent_t end = nullptr;
    cuda::check(cudaEventCreate(&begin), "cudaEventCreate");
    cuda::check(cudaEventCreate(&end), "cudaEventCreate");
    std::vector<float> times;
    for (int turn = 0; turn < 15; ++turn) {
        constexpr int runs = 20;
        run();
        cuda::check(cudaEventRecord(begin, stream.get()), "cudaEventRecord");
        for (int i = 0; i < runs; ++i) run();
        cuda::check(cudaEventRecord(end, stream.get()), "cudaEventRecord");
        cuda::check(cudaEventSynchronize(end), "cudaEventSynchronize");
        float milliseconds = 0;
        cuda::check(cudaEventElapsedTime(&milliseconds, begin, end), "cudaEventElapsedTime");
        times.push_back(milliseconds / 1000 / runs);
    }
    static_cast<void>(cudaEventDestroy(begin));
    static_cast<void>(cudaEventDestroy(end));
    std::ranges::nth_element(times, times.begin() + 7);
    return static_cast<double>(times[7]);
}

/// Returns gradient sizes, in elements, that vary and add up to `bytes`.
std::vector<std::size_t> sizes_of(std::size_t bytes, std::size_t element) {
    std::vector<std::size_t> sizes;
    const std::size_t pattern[] = {2359296, 512, 65536, 64, 1048576, 1000};
    std::size_t left = bytes / element;
    for (std::size_t i = 0; left > 0; ++i) {
        sizes.push_back(std::min(pattern[i % std::size(pattern)], left));
        left -= sizes.back();
    }
    return sizes;
}

}  // namespace

int main() {
    if (cuda::device_count() == 0) {
        std::puts("SKIPPED: no CUDA device");
        return 0;
    }
    const cuda::Stream stream;
    for (const auto& [type, name] : {std::pair{DType::f32, "f32"}, std::pair{DType::bf16, "bf16"}}) {
        for (const std::size_t mib : {1U, 25U, 256U, 1024U}) {
            const std::size_t bytes = mib << 20;
            const std::size_t element = dtype_size(type);
            cuda::DeviceBuffer<std::byte> from(2 * bytes);
            cuda::DeviceBuffer<std::byte> bucket(2 * bytes);
            cuda::check(cudaMemset(from.data(), 0, from.size()), "cudaMemset");
            std::vector<cuda::kernels::CopiedTensor> in;
            std::vector<cuda::kernels::CopiedTensor> out;
            std::size_t place = 0;
            for (const std::size_t size : sizes_of(bytes, element)) {
                in.push_back({from.data() + place, bucket.data() + place, size});
                out.push_back({bucket.data() + place, from.data() + place, size});
                place += (size * element + 63) / 64 * 64;
            }
            const double limit = median_seconds(stream, [&] {
                cuda::check(cudaMemcpyAsync(bucket.data(), from.data(), bytes, cudaMemcpyDeviceToDevice,
                                            stream.get()),
                            "cudaMemcpyAsync");
            });
            const auto report = [&](const char* what, double seconds) {
                std::printf("%s_%s_%zu_MiB %.0f GB/s | cudaMemcpy %.0f GB/s | ratio %.3f\n", what, name, mib,
                            2e-9 * static_cast<double>(bytes) / seconds,
                            2e-9 * static_cast<double>(bytes) / limit, limit / seconds);
            };
            report("copy_in", median_seconds(stream, [&] {
                       cuda::kernels::copy_all(in, {.from = type, .to = type}, {.factor = 0.25}, stream);
                   }));
            report("copy_out", median_seconds(stream, [&] {
                       cuda::kernels::copy_all(out, {.from = type, .to = type}, {}, stream);
                   }));
        }
    }
}
