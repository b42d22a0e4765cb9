#pragma once

#include "dptk/comm/gloo/device.hpp"

#include <pthread.h>

#include <cerrno>

#include "dptk/control/process/background_thread.hpp"

namespace DPTK_NAMESPACE::detail {

DPTK_INLINE BrokenPipeIgnored::BrokenPipeIgnored() {
    ::sigemptyset(&broken_pipe_);
    ::sigaddset(&broken_pipe_, SIGPIPE);
    ::pthread_sigmask(SIG_BLOCK, &broken_pipe_, &before_);
}

DPTK_INLINE BrokenPipeIgnored::~BrokenPipeIgnored() {
    if (::sigismember(&before_, SIGPIPE) == 1) return;
    const timespec at_once{};
    while (::sigtimedwait(&broken_pipe_, nullptr, &at_once) < 0 && errno == EINTR) {
    }
    ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

DPTK_INLINE std::shared_ptr<gloo::transport::Device> make_gloo_device(const std::string& address) {
    const AllSignalsBlocked blocked;
    gloo::transport::tcp::attr attributes;
    attributes.hostname = address;
    return gloo::transport::tcp::CreateDevice(attributes);
}

}  // namespace DPTK_NAMESPACE::detail
