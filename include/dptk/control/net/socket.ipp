#pragma once

#include "dptk/control/net/socket.hpp"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>

#include "dptk/core/detail/errno_text.hpp"
#include "dptk/core/detail/text.hpp"
#include "dptk/core/error.hpp"

namespace DPTK_NAMESPACE::detail {

DPTK_INLINE FileDescriptor& FileDescriptor::operator=(FileDescriptor&& other) noexcept {
    std::swap(number_, other.number_);
    return *this;
}

DPTK_INLINE FileDescriptor::~FileDescriptor() {
    close();
}

DPTK_INLINE void FileDescriptor::close() noexcept {
    if (number_ >= 0) ::close(number_);
    number_ = -1;
}

DPTK_INLINE std::string SocketAddress::text() const {
    if (host.find(':') == std::string::npos) return detail::text(host, ':', port);
    return detail::text('[', host, "]:", port);
}

DPTK_INLINE Socket::Socket(FileDescriptor descriptor) : descriptor_(std::move(descriptor)) {}

DPTK_INLINE Socket::~Socket() {
    close();
}

DPTK_INLINE void Socket::close() noexcept {
    if (is_open()) ::shutdown(number(), SHUT_RDWR);
    descriptor_.close();
}

DPTK_INLINE void Socket::set_up_connection() const {
    set_option(IPPROTO_TCP, TCP_NODELAY, 1);
    set_option(SOL_SOCKET, SO_KEEPALIVE, 1);
    set_option(IPPROTO_TCP, TCP_KEEPIDLE, 10);
    set_option(IPPROTO_TCP, TCP_KEEPINTVL, 5);
    set_option(IPPROTO_TCP, TCP_KEEPCNT, 4);
    set_option(IPPROTO_TCP, TCP_USER_TIMEOUT, 30'000);
}

DPTK_INLINE void Socket::set_option(int level, int option, int value) const {
    ::setsockopt(number(), level, option, &value, sizeof value);  // optional, so errors are ignored
}

DPTK_INLINE void Socket::send_all(std::string_view bytes, const Deadline& deadline) const {
    while (!bytes.empty()) {
        const ssize_t sent = ::send(number(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
        if (sent >= 0) {
            bytes.remove_prefix(static_cast<std::size_t>(sent));
        } else {
            wait_after_error(POLLOUT, deadline);
        }
    }
}

DPTK_INLINE void Socket::receive_exactly(char* bytes, std::size_t size, const Deadline& deadline) const {
    while (size > 0) {
        const ssize_t received = ::recv(number(), bytes, size, 0);
        if (received == 0) throw PeerLostError(ended("closed by the other side"));
        if (received > 0) {
            bytes += received;
            size -= static_cast<std::size_t>(received);
        } else {
            wait_after_error(POLLIN, deadline);
        }
    }
}

DPTK_INLINE bool Socket::wait_for(short events, const Deadline& deadline) const {
    const AwakeClock::Waiting waiting;
    while (true) {
        pollfd events_of{number(), events, 0};
        const auto time = std::min(deadline.left(), AwakeClock::look_interval);
        const int ready = ::poll(&events_of, 1, static_cast<int>(time.count()));
        if (ready > 0) return true;
        if (ready < 0 && errno != EINTR) throw BackendError("poll: " + errno_text(errno));
        if (deadline.passed()) return false;
    }
}

DPTK_INLINE std::string Socket::ended(std::string_view reason) const {
    const std::string peer = peer_address().text();
    if (peer == SocketAddress().text()) return text("the connection has ended: ", reason);
    return text("the connection to ", peer, " has ended: ", reason);
}

DPTK_INLINE void Socket::wait_after_error(short events, const Deadline& deadline) const {
    if (errno == EINTR) return;
    if (errno == ECONNRESET || errno == EPIPE) throw ConnectionResetError(ended(errno_text(errno)));
    if (errno != EAGAIN && errno != EWOULDBLOCK) throw PeerLostError(ended(errno_text(errno)));
    if (wait_for(events, deadline)) return;
    throw TimeoutError(text("the connection to ", peer_address().text(), " has timed out"));
}

DPTK_INLINE SocketAddress socket_address(const sockaddr* address, socklen_t size) {
    char host[NI_MAXHOST];
    char port[NI_MAXSERV];
    if (::getnameinfo(address, size, host, sizeof host, port, sizeof port, NI_NUMERICHOST | NI_NUMERICSERV) !=
        0) {
        return {};
    }
    constexpr std::string_view mapped = "::ffff:";
    std::string_view name = host;
    if (name.starts_with(mapped) && name.find('.') != std::string_view::npos) {
        name.remove_prefix(mapped.size());
    }
    return {std::string(name), static_cast<std::uint16_t>(std::atoi(port))};
}

DPTK_INLINE SocketAddress Socket::address_from(AddressFunction function) const {
    sockaddr_storage storage{};
    socklen_t size = sizeof storage;
    auto* address = reinterpret_cast<sockaddr*>(&storage);
    if (function(number(), address, &size) != 0) return {};
    return socket_address(address, size);
}

DPTK_INLINE ResolvedAddresses resolve(const char* host, std::uint16_t port, int family, int flags) {
    addrinfo hints{};
    hints.ai_family = family;
    hints.ai_socktype = SOCK_STREAM;
    hints.ai_flags = flags | AI_NUMERICSERV;
    addrinfo* list = nullptr;
    const int status = ::getaddrinfo(host, std::to_string(port).c_str(), &hints, &list);
    ResolvedAddresses resolved;
    if (status == 0) {
        resolved.first.reset(list);
    } else {
        resolved.problem = status == EAI_SYSTEM ? errno_text(errno) : ::gai_strerror(status);
    }
    return resolved;
}

DPTK_INLINE Socket open_socket(int family) {
    const int number = ::socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    return number < 0 ? Socket() : Socket(FileDescriptor(number));
}

/// Returns 0, or the errno value of the failure.
[[nodiscard]] DPTK_INLINE int bind_and_listen(const Socket& socket, const addrinfo& address) {
    constexpr int backlog = 4096;
    if (!socket.is_open()) return errno;
    socket.set_option(SOL_SOCKET, SO_REUSEADDR, 1);
    if (address.ai_family == AF_INET6) {
        socket.set_option(IPPROTO_IPV6, IPV6_V6ONLY, 0);
    }
    if (::bind(socket.number(), address.ai_addr, address.ai_addrlen) != 0) return errno;
    return ::listen(socket.number(), backlog) == 0 ? 0 : errno;
}

DPTK_INLINE std::string listening_text(const std::string& address, std::uint16_t port) {
    return text("port ", port, " on ", address.empty() ? "all interfaces" : address);
}

DPTK_INLINE std::optional<Socket> listen_on(const std::string& address, std::uint16_t port) {
    const char* const host = address.empty() ? nullptr : address.c_str();
    std::string problem;
    // An IPv6 socket on all interfaces also accepts IPv4 connections. Some hosts support only one of the two
    // protocols.
    const int first = address.empty() ? AF_INET6 : AF_INET;
    const int second = address.empty() ? AF_INET : AF_INET6;
    for (const int family : {first, second}) {
        const ResolvedAddresses resolved = resolve(host, port, family, AI_PASSIVE);
        if (resolved.first == nullptr && problem.empty()) problem = resolved.problem;
        for (const addrinfo* one = resolved.first.get(); one != nullptr; one = one->ai_next) {
            Socket socket = open_socket(family);
            const int error = bind_and_listen(socket, *one);
            if (error == 0) return socket;
            if (error == EADDRINUSE) return std::nullopt;
            problem = errno_text(error);
        }
    }
    throw BackendError(text("cannot listen on ", listening_text(address, port), ": ", problem));
}

DPTK_INLINE int finish_connecting(const Socket& socket, const Deadline& deadline) {
    if (!socket.wait_for(POLLOUT, deadline)) return ETIMEDOUT;
    int error = 0;
    socklen_t size = sizeof error;
    if (::getsockopt(socket.number(), SOL_SOCKET, SO_ERROR, &error, &size) != 0) return errno;
    return error;
}

DPTK_INLINE ConnectResult connect_to(const addrinfo& address, const Deadline& deadline) {
    Socket socket = open_socket(address.ai_family);
    if (!socket.is_open()) return {{}, errno_text(errno)};
    int error = 0;
    if (::connect(socket.number(), address.ai_addr, address.ai_addrlen) != 0) error = errno;
    if (error == EINPROGRESS || error == EINTR) error = finish_connecting(socket, deadline);
    if (error != 0) return {{}, errno_text(error), error == ECONNREFUSED};
    // If no program listens on a local port, TCP may connect a socket to itself.
    if (socket.local_address() == socket.peer_address()) return {{}, errno_text(ECONNREFUSED), true};
    socket.set_up_connection();
    return {std::move(socket), {}};
}

DPTK_INLINE ConnectResult connect_to(const std::string& host, std::uint16_t port, const Deadline& deadline) {
    const ResolvedAddresses resolved = resolve(host.c_str(), port, AF_UNSPEC, 0);
    ConnectResult result{{}, resolved.problem};
    std::int64_t left = 0;
    for (const addrinfo* one = resolved.first.get(); one != nullptr; one = one->ai_next) ++left;
    for (const addrinfo* one = resolved.first.get(); one != nullptr; one = one->ai_next, --left) {
        result = connect_to(*one, Deadline(deadline.left() / left));
        if (result.socket.is_open()) break;
    }
    return result;
}

}  // namespace DPTK_NAMESPACE::detail
