#pragma once

#include "dptk/comm/call_wait.hpp"

#include <poll.h>

#include <array>
#include <cerrno>

#include "dptk/core/detail/errno_text.hpp"
#include "dptk/core/detail/text.hpp"
#include "dptk/core/error.hpp"

namespace DPTK_NAMESPACE {

namespace detail {

DPTK_INLINE void wait_for_events(int descriptor, short events) {
    constexpr int look_interval = 50;  // milliseconds, if nothing reports the job's failure
    JobState* const job = job_of_call;
    std::array<pollfd, 2> polled{
        {{descriptor, events, 0}, {job == nullptr ? -1 : job->failure_descriptor(), POLLIN, 0}}};
    const int timeout = job != nullptr && polled[1].fd < 0 ? look_interval : -1;
    while (::poll(polled.data(), polled.size(), timeout) >= 0 || errno == EINTR) {
        if (polled[0].revents != 0) return;
        check_call();
    }
    throw BackendError(text("poll: ", errno_text(errno)));
}

}  // namespace detail

DPTK_INLINE void check_call() {
    if (detail::job_of_call != nullptr) detail::job_of_call->check();
}

DPTK_INLINE void wait_readable(int descriptor) {
    detail::wait_for_events(descriptor, POLLIN);
}

DPTK_INLINE void wait_writable(int descriptor) {
    detail::wait_for_events(descriptor, POLLOUT);
}

}  // namespace DPTK_NAMESPACE
