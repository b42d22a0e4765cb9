// CudaMemory runs the verb suite on buffers in device memory.
#pragma once

#include <dptk/core/cuda.hpp>

#include <cstddef>
#include <memory>

#include "support/verb_suite.hpp"

namespace test {

/// Memory of the device that is current when the object is constructed.
class CudaMemory final : public OtherMemory {
  public:
    [[nodiscard]] dptk::Device device() const override { return device_; }
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
    dptk::Device device_ = {dptk::DeviceType::cuda, dptk::cuda::current_device()};
    dptk::cuda::Stream stream_;
};

}  // namespace test
