/// A TCP port of this host that is free, and kept so while the object lives: no other program is given it by
/// chance, but one that asks for it by number, with SO_REUSEADDR, can listen on it.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "dptk/core/error.hpp"
#include "dptk/core/text.hpp"

namespace dptk {

class HeldPort {
  public:
    /// Throws BackendError where no port is to be had.
    HeldPort() : socket_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
        const int on = 1;
        sockaddr_in address{};
        address.sin_family = AF_INET;
        socklen_t size = sizeof address;
        auto* const any = reinterpret_cast<sockaddr*>(&address);
        if (socket_ < 0 || setsockopt(socket_, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) != 0 ||
            bind(socket_, any, size) != 0 || getsockname(socket_, any, &size) != 0) {
            const int reason = errno;
            if (socket_ >= 0) close(socket_);
            throw BackendError(detail::text("cannot find a free port: ", std::strerror(reason)));
        }
        number_ = ntohs(address.sin_port);
    }

    HeldPort(const HeldPort&) = delete;
    HeldPort& operator=(const HeldPort&) = delete;
    ~HeldPort() { close(socket_); }

    [[nodiscard]] int number() const noexcept { return number_; }

  private:
    int socket_;
    int number_ = 0;
};

}  // namespace dptk
