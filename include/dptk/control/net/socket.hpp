/// TCP sockets that own their descriptor, and whose waits have a deadline. None blocks beyond it, none raises
/// SIGPIPE, none is inherited by programs that this process starts.
#pragma once

#include <netdb.h>
#include <sys/socket.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "dptk/control/process/deadline.hpp"
#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE::detail {

[[nodiscard]] std::string errno_text(int error);

/// Owns a descriptor, and closes it.
class FileDescriptor {
  public:
    FileDescriptor() = default;
    explicit FileDescriptor(int number) noexcept : number_(number) {}
    FileDescriptor(FileDescriptor&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
    FileDescriptor& operator=(FileDescriptor&& other) noexcept;
    ~FileDescriptor();

    [[nodiscard]] int number() const noexcept { return number_; }
    [[nodiscard]] bool is_open() const noexcept { return number_ >= 0; }

    void close() noexcept;

  private:
    int number_ = -1;
};

struct SocketAddress {
    /// Numbers: "10.0.0.7" or "fe80::1".
    std::string host;
    std::uint16_t port = 0;

    /// "10.0.0.7:29500" or "[fe80::1]:29500".
    [[nodiscard]] std::string text() const;

    friend bool operator==(const SocketAddress&, const SocketAddress&) = default;
};

class Socket {
  public:
    Socket() = default;

    /// Takes over a socket that does not block (SOCK_NONBLOCK).
    explicit Socket(FileDescriptor descriptor);

    Socket(Socket&&) = default;
    Socket& operator=(Socket&&) = default;

    /// Tells the other side, even where a child of this process still holds the descriptor.
    ~Socket();

    [[nodiscard]] int number() const noexcept { return descriptor_.number(); }
    [[nodiscard]] bool is_open() const noexcept { return descriptor_.is_open(); }

    void close() noexcept;

    [[nodiscard]] SocketAddress local_address() const { return address_from(&::getsockname); }

    /// Empty and 0 where there is no peer any more.
    [[nodiscard]] SocketAddress peer_address() const { return address_from(&::getpeername); }

    /// Small messages leave at once, and a host that has vanished is noticed within half a minute.
    void set_up_connection() const;

    void set_option(int level, int option, int value) const;

    /// Sends all. Throws TimeoutError at the deadline and PeerLostError when the connection has ended.
    void send_all(std::string_view bytes, const Deadline& deadline) const;

    /// Receives exactly `size` bytes. Throws TimeoutError at the deadline and PeerLostError when the
    /// connection has ended.
    void receive_exactly(char* bytes, std::size_t size, const Deadline& deadline) const;

    /// Whether the events of poll() have come before the deadline.
    [[nodiscard]] bool wait_for(short events, const Deadline& deadline) const;

  private:
    using AddressFunction = int (*)(int, sockaddr*, socklen_t*);

    [[nodiscard]] SocketAddress address_from(AddressFunction function) const;

    [[nodiscard]] std::string ended(std::string_view reason) const;

    void wait_after_error(short events, const Deadline& deadline) const;

    FileDescriptor descriptor_;
};

/// IPv4 addresses are told as such, also where they arrive through an IPv6 socket.
[[nodiscard]] SocketAddress socket_address(const sockaddr* address, socklen_t size);

struct ResolvedAddresses {
    std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> first{nullptr, &::freeaddrinfo};
    /// Why there are none.
    std::string problem;
};

/// Asks the system's resolver, which may block for its own timeouts.
[[nodiscard]] ResolvedAddresses resolve(const char* host, std::uint16_t port, int family, int flags);

[[nodiscard]] Socket open_socket(int family);

/// "port 29500 on all interfaces".
[[nodiscard]] std::string listening_text(const std::string& address, std::uint16_t port);

/// Listens on a name or number of this machine, or, where it is empty, on all interfaces; on a free port
/// where it is 0. Nothing where the port is in use. Throws BackendError for all other failures.
[[nodiscard]] std::optional<Socket> listen_on(const std::string& address, std::uint16_t port);

struct ConnectResult {
    /// Open where it has worked.
    Socket socket;
    std::string problem;
};

/// Finishes what connect() has begun. 0, or the errno of what failed.
[[nodiscard]] int finish_connecting(const Socket& socket, const Deadline& deadline);

[[nodiscard]] ConnectResult connect_to(const addrinfo& address, const Deadline& deadline);

/// Tries each address of the host once, all of them within the deadline.
[[nodiscard]] ConnectResult connect_to(const std::string& host, std::uint16_t port, const Deadline& deadline);

}  // namespace DPTK_NAMESPACE::detail

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/control/net/socket.ipp"
#include "dptk/core/error.hpp"
#endif
