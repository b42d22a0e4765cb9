/// A call into a GPU library that may never return.
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

/// Runs on a thread of its own, so that nobody has to wait for it. Where somebody has waited in vain, its
/// devices count as stuck until it returns after all: what would wait for them is left undone, and a
/// process that comes to its end before does so by _Exit(EXIT_FAILURE), since the libraries' own ends would
/// wait as well.
class MayHangCall {
  public:
    /// For what takes no time, if it works at all.
    static constexpr std::chrono::milliseconds patience{3000};

    /// `what` is said where it does not return within `limit`.
    [[nodiscard]] static std::shared_ptr<MayHangCall> start(std::string what, std::vector<int> devices,
                                                            std::chrono::milliseconds limit,
                                                            std::function<void()> function);

    MayHangCall(const MayHangCall&) = delete;
    MayHangCall& operator=(const MayHangCall&) = delete;
    ~MayHangCall() = default;

    /// Blocks until it has returned, or its time has passed. Returns whether it has returned.
    bool wait();

    /// Whether it has returned, or will hardly do so any more. Does not block.
    [[nodiscard]] bool is_over();

  private:
    MayHangCall(std::string what, std::vector<int> devices, std::chrono::milliseconds limit);

    /// Under the lock.
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
            text(what_, " does not return: ", names, " is left as it is, and the process will end by _Exit"));
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
