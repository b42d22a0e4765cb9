#pragma once

#include "dptk/control/net/reserved_port.hpp"

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>

#include "dptk/core/detail/errno_text.hpp"
#include "dptk/core/detail/text.hpp"
#include "dptk/core/error.hpp"

namespace DPTK_NAMESPACE::detail {

DPTK_INLINE ReservedPort::ReservedPort() : socket_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    const int on = 1;
    sockaddr_in address{};
    address.sin_family = AF_INET;
    socklen_t size = sizeof address;
    auto* const any = reinterpret_cast<sockaddr*>(&address);
    if (socket_ < 0 || setsockopt(socket_, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) != 0 ||
        bind(socket_, any, size) != 0 || getsockname(socket_, any, &size) != 0) {
        const int reason = errno;
        if (socket_ >= 0) close(socket_);
        throw BackendError(text("cannot find a free port: ", errno_text(reason)));
    }
    number_ = ntohs(address.sin_port);
}

DPTK_INLINE ReservedPort::~ReservedPort() {
    close(socket_);
}

}  // namespace DPTK_NAMESPACE::detail
