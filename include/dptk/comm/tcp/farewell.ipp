#pragma once

#include "dptk/comm/tcp/farewell.hpp"

#include <linux/sockios.h>
#include <poll.h>
#include <sys/ioctl.h>

#include <exception>

#include "dptk/core/log.hpp"

namespace DPTK_NAMESPACE::detail {

DPTK_INLINE void TcpFarewell::begin(std::vector<TcpConnection> connections,
                                    std::chrono::milliseconds time_limit) noexcept {
    std::shared_ptr<TcpFarewell> farewell;
    try {
        std::erase_if(connections, is_done);
        if (connections.empty()) return;
        farewell.reset(new TcpFarewell(std::move(connections), time_limit));
        farewell->self_ = farewell;
        Watchdog::get().watch(farewell);
    } catch (const std::exception& error) {
        if (farewell) farewell->self_.reset();
        log(LogLevel::error, -1, std::string("while connections were closed: ") + error.what());
    }
}

DPTK_INLINE void TcpFarewell::look() noexcept {
    std::erase_if(connections_, is_done);
    if (connections_.empty() || deadline_.passed()) self_.reset();
}

DPTK_INLINE bool TcpFarewell::is_done(TcpConnection& connection) {
    if (!connection.flush()) return true;
    if (connection.has_output()) return false;
    // A connection that the other rank has reset acknowledges nothing any more.
    pollfd state{connection.socket().number(), 0, 0};
    if (::poll(&state, 1, 0) != 0) return true;
    int unacknowledged = 0;
    return ::ioctl(connection.socket().number(), SIOCOUTQ, &unacknowledged) != 0 || unacknowledged == 0;
}

}  // namespace DPTK_NAMESPACE::detail
