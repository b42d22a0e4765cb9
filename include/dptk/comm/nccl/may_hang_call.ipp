#pragma once

#include "dptk/comm/nccl/may_hang_call.hpp"

#include <cstdio>
#include <exception>

#include "dptk/control/process/background_thread.hpp"

namespace DPTK_NAMESPACE::detail {

DPTK_INLINE std::shared_ptr<MayHangCall> MayHangCall::start(std::string what, std::vector<int> devices,
                                                            std::chrono::milliseconds limit,
                                                            std::function<void()> function) {
    std::shared_ptr<MayHangCall> call(new MayHangCall(std::move(what), std::move(devices), limit));
    start_background_thread([call, function = std::move(function)]() mutable {
        try {
            function();
        } catch (const std::exception&) {
            // A function whose outcome matters catches its exceptions itself.
        }
        function = nullptr;
        call->end();
    }).detach();
    return call;
}

DPTK_INLINE bool MayHangCall::wait() {
    std::unique_lock lock(mutex_);
    deadline_.wait(changed_, lock, [&] { return ended_; });
    return !is_stuck();
}

DPTK_INLINE bool MayHangCall::is_over() {
    const std::lock_guard lock(mutex_);
    return ended_ || is_stuck();
}

DPTK_INLINE MayHangCall::MayHangCall(std::string what, std::vector<int> devices,
                                     std::chrono::milliseconds limit)
    : what_(std::move(what)), devices_(std::move(devices)), deadline_(limit) {}

DPTK_INLINE void MayHangCall::end() {
    const std::lock_guard lock(mutex_);
    ended_ = true;
    if (stuck_) {
        for (const int device : devices_) cuda::detail::unmark_stuck(device);
    }
    changed_.notify_all();
}

DPTK_INLINE void MayHangCall::end_process() {
    if (!cuda::detail::is_any_stuck()) return;
    std::fflush(nullptr);
    std::_Exit(EXIT_FAILURE);
}

}  // namespace DPTK_NAMESPACE::detail
