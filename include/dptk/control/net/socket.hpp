/// TCP sockets that own their descriptor and whose operations have a deadline. They do not block beyond the
/// deadline, do not raise SIGPIPE, and are not inherited by programs that this process starts.
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
#include "dptk/core/error.hpp"

namespace DPTK_NAMESPACE::detail {

/// Owns a file descriptor, and closes it on destruction.
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
    /// The numeric address: "10.0.0.7" or "fe80::1".
    std::string host;
    std::uint16_t port = 0;

    /// Returns "10.0.0.7:29500" or "[fe80::1]:29500".
    [[nodiscard]] std::string text() const;

    friend bool operator==(const SocketAddress&, const SocketAddress&) = default;
};

class Socket {
  public:
    Socket() = default;

    /// Takes ownership of a non-blocking socket (SOCK_NONBLOCK).
    explicit Socket(FileDescriptor descriptor);

    Socket(Socket&&) = default;
    Socket& operator=(Socket&&) = default;

    /// Shuts the connection down, even if a child of this process has inherited the descriptor.
    ~Socket();

    [[nodiscard]] int number() const noexcept { return descriptor_.number(); }
    [[nodiscard]] bool is_open() const noexcept { return descriptor_.is_open(); }

    void close() noexcept;

    [[nodiscard]] SocketAddress local_address() const { return address_from(&::getsockname); }

    /// Returns the address of the peer, or an empty host and port 0 if the socket is no longer connected.
    [[nodiscard]] SocketAddress peer_address() const { return address_from(&::getpeername); }

    /// Sets TCP_NODELAY, so that small messages are sent at once, and keepalive options that detect the
    /// loss of the peer's host within 30 s.
    void set_up_connection() const;

    void set_option(int level, int option, int value) const;

    /// Sends all bytes. Throws TimeoutError at the deadline and PeerLostError when the connection has
    /// ended.
    void send_all(std::string_view bytes, const Deadline& deadline) const;

    /// Receives exactly `size` bytes. Throws TimeoutError at the deadline and PeerLostError when the
    /// connection has ended.
    void receive_exactly(char* bytes, std::size_t size, const Deadline& deadline) const;

    /// Waits until poll() reports one of `events` or an error. Returns false if the deadline passes first.
    [[nodiscard]] bool wait_for(short events, const Deadline& deadline) const;

  private:
    using AddressFunction = int (*)(int, sockaddr*, socklen_t*);

    [[nodiscard]] SocketAddress address_from(AddressFunction function) const;

    [[nodiscard]] std::string ended(std::string_view reason) const;

    void wait_after_error(short events, const Deadline& deadline) const;

    FileDescriptor descriptor_;
};

/// Thrown if a connection was reset: the other process may still run, so reconnecting may succeed. If the
/// other process has closed the connection, receiving throws a plain PeerLostError.
class DPTK_EXPORT ConnectionResetError : public PeerLostError {
  public:
    using PeerLostError::PeerLostError;
};

/// Converts a socket address. IPv4 addresses that are mapped to IPv6 are returned as IPv4 addresses.
[[nodiscard]] SocketAddress socket_address(const sockaddr* address, socklen_t size);

struct ResolvedAddresses {
    std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> first{nullptr, &::freeaddrinfo};
    /// Why no address was found.
    std::string problem;
};

/// Resolves a host name with the system's resolver, which has its own timeouts.
[[nodiscard]] ResolvedAddresses resolve(const char* host, std::uint16_t port, int family, int flags);

[[nodiscard]] Socket open_socket(int family);

/// Returns a description such as "port 29500 on all interfaces".
[[nodiscard]] std::string listening_text(const std::string& address, std::uint16_t port);

/// Listens on a name or numeric address of this host, or on all interfaces if `address` is empty. Port 0
/// selects a free port. Returns nullopt if the port is in use. Throws BackendError for other failures.
[[nodiscard]] std::optional<Socket> listen_on(const std::string& address, std::uint16_t port);

struct ConnectResult {
    /// Open if the connection was established.
    Socket socket;
    /// Why the connection failed.
    std::string problem = {};
    /// Whether the connection failed because no program listens at the address.
    bool is_refused = false;
};

/// Completes a non-blocking connect(). Returns 0, or the errno value of the failure.
[[nodiscard]] int finish_connecting(const Socket& socket, const Deadline& deadline);

[[nodiscard]] ConnectResult connect_to(const addrinfo& address, const Deadline& deadline);

/// Connects to a host: tries each of its addresses once, all within the deadline.
[[nodiscard]] ConnectResult connect_to(const std::string& host, std::uint16_t port, const Deadline& deadline);

}  // namespace DPTK_NAMESPACE::detail

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/control/net/socket.ipp"
#endif
