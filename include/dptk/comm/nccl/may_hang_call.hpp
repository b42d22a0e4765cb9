/// Calls into GPU libraries that may hang: each call runs on a thread of its own, with a time limit.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "dptk/control/process/deadline.hpp"
#include "dptk/core/config.hpp"
#include "dptk/core/cuda/device.hpp"
#include "dptk/core/detail/text.hpp"
#include "dptk/core/log.hpp"

namespace DPTK_NAMESPACE::detail {

/// A call that runs on a thread of its own. If the call exceeds its limit, its devices are marked as stuck
/// until the call returns: dptk skips operations that would wait for these devices, and a process that exits
/// meanwhile exits by _Exit(EXIT_FAILURE), since the libraries' exit handlers would hang too.
class MayHangCall {
  public:
    /// Limit for calls that normally return at once.
    static constexpr std::chrono::milliseconds short_limit{3000};

    /// Starts the call. If the call exceeds `limit`, wait() or is_over() logs an error that names it `what`.
    [[nodiscard]] static std::shared_ptr<MayHangCall> start(std::string what, std::vector<int> devices,
                                                            std::chrono::milliseconds limit,
                                                            std::function<void()> function);

    MayHangCall(const MayHangCall&) = delete;
    MayHangCall& operator=(const MayHangCall&) = delete;
    ~MayHangCall() = default;

    /// Blocks until the call has returned or its limit is exceeded. Returns whether it has returned.
    bool wait();

    /// Whether the call has returned or exceeded its limit. Does not block.
    [[nodiscard]] bool is_over();

  private:
    MayHangCall(std::string what, std::vector<int> devices, std::chrono::milliseconds limit);

    /// Whether the call has exceeded its limit. The first time that it has, marks its devices as stuck and
    /// logs an error. Requires the lock.
    [[nodiscard]] bool is_stuck() {
        if (ended_ || !deadline_.passed()) return false;
        if (std::exchange(stuck_, true)) return true;
        std::string names;
        for (const int device : devices_) {
            cuda::detail::mark_stuck(device);
            names += text(names.empty() ? "" : ", ", "cuda:", device);
        }
        static const int registered = std::atexit(&end_process);
        static_cast<void>(registered);
        log(LogLevel::error, -1,
            text(what_, " has exceeded its time limit: until it returns, ", names,
                 " is not released, and the process would exit by _Exit"));
        return true;
    }

    void end();

    static void end_process();

    const std::string what_;
    const std::vector<int> devices_;
    const Deadline deadline_;
    std::mutex mutex_;
    std::condition_variable changed_;
    bool ended_ = false;
    bool stuck_ = false;
};

}  // namespace DPTK_NAMESPACE::detail

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/comm/nccl/may_hang_call.ipp"
#endif
