// Ranks as threads with a device each, over the stand-ins for CUDA and NCCL.
#pragma once

#include <doctest/doctest.h>
#include <dptk/comm/nccl.hpp>
#include <dptk/comm/thread.hpp>
#include <dptk/core/cuda.hpp>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cuda_double/double.hpp"
#include "support/verb_suite.hpp"

namespace test {

/// A machine with so many GPUs, for one test; at its end nothing forbidden has been called, and nothing is
/// left.
class Machine {
  public:
    explicit Machine(int devices) { cuda_double::reset(devices); }
    ~Machine() {
        cuda_double::finish();
        for (const std::string& problem : cuda_double::problems()) FAIL_CHECK("forbidden: ", problem);
        for (const std::string& left : cuda_double::leftovers()) FAIL_CHECK("left behind: ", left);
    }
    Machine(const Machine&) = delete;
    Machine& operator=(const Machine&) = delete;
};

/// Device memory for the verb suite.
class CudaMemory final : public OtherMemory {
  public:
    [[nodiscard]] dptk::Device device() const override {
        return {dptk::DeviceType::cuda, dptk::cuda::current_device()};
    }
    [[nodiscard]] dptk::StreamRef stream() const override { return stream_; }
    [[nodiscard]] std::shared_ptr<void> allocate(std::size_t bytes) override {
        auto buffer = std::make_shared<dptk::cuda::DeviceBuffer<std::byte>>(bytes);
        return {buffer, buffer->data()};
    }
    void write(void* to, const void* from, std::size_t bytes) override {
        dptk::cuda::detail::copy_bytes(to, from, bytes, stream_);
    }
    void read(void* to, const void* from, std::size_t bytes) override {
        dptk::cuda::detail::copy_bytes(to, from, bytes, stream_);
        stream_.synchronize();
    }

  private:
    dptk::cuda::Stream stream_;
};

/// fn(ProcessGroup& threads), as so many ranks that have a device each.
template <class Fn>
void on_devices(int ranks, Fn&& fn, dptk::ThreadOptions options = {}) {
    dptk::launch_threads(
        ranks,
        [&](dptk::ProcessGroup& threads) {
            dptk::cuda::set_device(threads.rank());
            fn(threads);
        },
        options);
}

}  // namespace test
