#pragma once

#include "dptk/comm/tcp/events.hpp"

#include <cerrno>

#include "dptk/control/process/deadline.hpp"
#include "dptk/core/detail/errno_text.hpp"
#include "dptk/core/detail/text.hpp"
#include "dptk/core/error.hpp"

namespace DPTK_NAMESPACE::detail {

DPTK_INLINE TcpEvents::TcpEvents() : epoll_(::epoll_create1(EPOLL_CLOEXEC)) {
    if (!epoll_.is_open()) throw BackendError(text("epoll: ", errno_text(errno)));
}

DPTK_INLINE void TcpEvents::add(int descriptor, std::uint32_t events, TcpEvent event) const {
    control(EPOLL_CTL_ADD, descriptor, events, event);
}

DPTK_INLINE void TcpEvents::change(int descriptor, std::uint32_t events, TcpEvent event) const {
    control(EPOLL_CTL_MOD, descriptor, events, event);
}

DPTK_INLINE void TcpEvents::remove(int descriptor) const noexcept {
    if (descriptor >= 0) ::epoll_ctl(epoll_.number(), EPOLL_CTL_DEL, descriptor, nullptr);
}

DPTK_INLINE std::size_t TcpEvents::wait(std::span<epoll_event> found,
                                        std::chrono::milliseconds timeout) const {
    const int limit = timeout >= longest_wait ? -1 : static_cast<int>(timeout.count());
    const int count = ::epoll_wait(epoll_.number(), found.data(), static_cast<int>(found.size()), limit);
    if (count >= 0) return static_cast<std::size_t>(count);
    if (errno != EINTR) throw BackendError(text("epoll: ", errno_text(errno)));
    return 0;
}

DPTK_INLINE TcpEvent TcpEvents::event_of(const epoll_event& found) noexcept {
    return {static_cast<TcpEvent::Kind>(found.data.u64 >> 32), static_cast<std::uint32_t>(found.data.u64)};
}

DPTK_INLINE void TcpEvents::control(int operation, int descriptor, std::uint32_t events,
                                    TcpEvent event) const {
    epoll_event watched{.events = events, .data = {}};
    watched.data.u64 = static_cast<std::uint64_t>(event.kind) << 32 | event.number;
    if (::epoll_ctl(epoll_.number(), operation, descriptor, &watched) != 0)
        throw BackendError(text("epoll: ", errno_text(errno)));
}

}  // namespace DPTK_NAMESPACE::detail
