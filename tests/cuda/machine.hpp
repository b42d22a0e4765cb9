// Ranks as threads with a device each, over the stand-ins for CUDA and NCCL.
#pragma once

#include <doctest/doctest.h>
#include <dptk/comm/nccl.hpp>
#include <dptk/comm/thread.hpp>
#include <dptk/core/log.hpp>

#include <cstdlib>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cuda_double/double.hpp"
#include "support/cuda_memory.hpp"

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

/// DPTK_DEVICE_BACKEND, for one test.
class DeviceBackend {
  public:
    explicit DeviceBackend(const char* name) { ::setenv("DPTK_DEVICE_BACKEND", name, 1); }
    ~DeviceBackend() { ::unsetenv("DPTK_DEVICE_BACKEND"); }
    DeviceBackend(const DeviceBackend&) = delete;
    DeviceBackend& operator=(const DeviceBackend&) = delete;
};

/// What is logged while it lives.
class LogRecorder {
  public:
    LogRecorder() {
        dptk::set_log_sink([this](dptk::LogLevel, int, std::string_view line) { lines_.emplace_back(line); });
    }
    ~LogRecorder() { dptk::set_log_sink({}); }
    LogRecorder(const LogRecorder&) = delete;
    LogRecorder& operator=(const LogRecorder&) = delete;

    [[nodiscard]] const std::vector<std::string>& lines() const { return lines_; }

  private:
    std::vector<std::string> lines_;
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
