// Batches of a DataLoader on a device.
#include <doctest/doctest.h>
#include <dptk/core/cuda.hpp>
#include <dptk/data/cuda/device_loader.hpp>
#include <dptk/data/data_loader.hpp>

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <utility>
#include <vector>

#include "cuda/machine.hpp"

namespace {

/// Sample i is a row of numbers from i on, and the label i. One sample may be unreadable.
struct Rows {
    std::size_t unreadable = 1000;

    [[nodiscard]] std::size_t size() const { return 101; }
    [[nodiscard]] std::pair<std::vector<float>, std::int64_t> get(std::size_t i) const {
        if (i == unreadable) throw std::runtime_error("the disk is gone");
        std::vector<float> row(300);
        for (std::size_t e = 0; e < row.size(); ++e) row[e] = static_cast<float>(i + e);
        return {row, static_cast<std::int64_t>(i)};
    }
};

int calls_of(const char* function) {
    int calls = 0;
    for (const cuda_double::Count& count : cuda_double::counts())
        if (count.place.function == function) calls += count.calls;
    return calls;
}

template <class T>
dptk::cuda::DeviceBuffer<T> copy_of(const dptk::DeviceTensor<T>& tensor, dptk::StreamRef stream) {
    dptk::cuda::DeviceBuffer<T> copy(tensor.size());
    dptk::cuda::copy_on_device(tensor.values(), copy.span(), stream);
    return copy;
}

}  // namespace

TEST_CASE("batches on a device are those of the loader, in page-locked memory, while the host runs ahead") {
    for (const std::size_t workers : {0U, 2U}) {
        const test::Machine machine(2);
        dptk::cuda::set_device(1);
        const Rows rows;
        dptk::DistributedSampler sampler(rows.size(), 1, 0, {.seed = 3});
        dptk::DataLoader loader(rows, sampler, {.batch_size = 8, .workers = workers});
        const dptk::cuda::Stream stream;
        {
            dptk::cuda::DeviceLoader on_device(loader, stream);
            CHECK(on_device.size() == 13);
            for (int pass = 0; pass < 3; ++pass) {
                std::vector<dptk::cuda::DeviceBuffer<float>> seen;
                std::vector<dptk::cuda::DeviceBuffer<std::int64_t>> seen_labels;
                for (const auto& [values, labels] : on_device) {
                    CHECK(values.shape() == dptk::Shape{labels.size(), 300});
                    CHECK(labels.device() == dptk::Device{dptk::DeviceType::cuda, 1});
                    seen.push_back(copy_of(values, stream));
                    seen_labels.push_back(copy_of(labels, stream));
                    if (pass == 1 && seen.size() == 4) break;
                }
                if (pass == 1) {  // the next pass begins while the device still uses the last batch
                    for (const auto& [values, labels] : on_device) {
                        if (labels.size() < 8) break;
                    }
                }
                CHECK(seen.size() == (pass == 1 ? 4 : 13));
                std::size_t batch = 0;
                for (const auto& [values, labels] : loader) {
                    const std::vector<float> expected(values.values().begin(), values.values().end());
                    CHECK(dptk::cuda::to_host(seen[batch].span(), stream) == expected);
                    CHECK(dptk::cuda::to_host(seen_labels[batch].span(), stream) == labels);
                    if (++batch == seen.size()) break;
                }
            }
        }
        CHECK(calls_of("cudaHostAlloc") ==
              (workers == 0 ? 1 : 5) + 2);  // slots, and the labels of two batches
    }
}

TEST_CASE("a sample that cannot be read ends the pass on a device, and the next pass works") {
    const test::Machine machine(1);
    dptk::cuda::set_device(0);
    Rows rows{50};
    dptk::DistributedSampler sampler(rows.size(), 1, 0, {.shuffle = false});
    dptk::DataLoader loader(rows, sampler, {.batch_size = 8, .workers = 1});
    const dptk::cuda::Stream stream;
    dptk::cuda::DeviceLoader on_device(loader, stream);
    for (int pass = 0; pass < 2; ++pass) {
        int batches = 0;
        const auto use_all = [&] {
            for (const auto& batch : on_device) {
                static_cast<void>(batch);
                ++batches;
            }
        };
        if (pass == 0) {
            CHECK_THROWS_AS(use_all(), dptk::SampleError);
            CHECK(batches == 6);
            rows.unreadable = 1000;
        } else {
            use_all();
            CHECK(batches == 13);
        }
    }
}
