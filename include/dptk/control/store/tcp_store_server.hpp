/// TCP store server: serves a store over TCP on a background thread. Connections from other programs (port
/// scanners, other jobs, invalid or missing data) neither stop the server nor delay the job, and the memory
/// that they can occupy is bounded.
#pragma once

#include <sys/epoll.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <unordered_map>
#include <utility>

#include "dptk/control/net/socket.hpp"
#include "dptk/control/process/deadline.hpp"
#include "dptk/control/store/detail/shared_store_map.hpp"
#include "dptk/control/store/detail/store_session.hpp"
#include "dptk/control/store/store.hpp"
#include "dptk/core/config.hpp"
#include "dptk/core/error.hpp"

namespace DPTK_NAMESPACE {

/// Thrown if another program listens on the port.
class DPTK_EXPORT PortInUseError : public BackendError {
  public:
    using BackendError::BackendError;
};

/// Options of a TcpStoreServer.
struct TcpStoreServerOptions {
    /// The port to listen on; 0 selects a free port.
    std::uint16_t port = 0;
    /// The host name or numeric address to listen on; if empty, all interfaces, IPv4 and IPv6.
    std::string bind_address = {};
    /// The token that clients must send, at most 256 bytes, so that clients of another job are refused; empty
    /// for none. The token prevents mistakes, not attacks, because it is sent unencrypted.
    std::string token = {};
};

namespace detail {

/// The largest number of connections that have not sent a greeting. Beyond it, the oldest of these
/// connections is closed.
inline constexpr std::size_t max_ungreeted = 256;
inline constexpr std::size_t max_store_connections = 65'536;

struct ConnectionLimits {
    std::size_t ungreeted = max_ungreeted;
    std::size_t greeted = max_store_connections;
};

/// Returns limits that leave a quarter of the process's file descriptors to the rest of the program.
[[nodiscard]] ConnectionLimits connection_limits();

/// Logs rejected connections: once per address and reason, and a limited number in total.
class RejectedConnectionLog {
  public:
    explicit RejectedConnectionLog(std::string where);

    void report(const std::string& address, std::string_view rejection);

    /// Logs, the first time, that the system offers no descriptor for a connection.
    void cannot_accept(int error);

  private:
    std::string where_;
    std::set<std::string> reported_;
    bool has_been_full_ = false;
};

/// The event loop of the server: handles the sockets and deadlines of the sessions.
class StoreServerLoop {
  public:
    using TimePoint = Deadline::Clock::time_point;

    StoreServerLoop(Socket listener, std::shared_ptr<SharedStoreMap> map, std::string token,
                    std::string where);

    StoreServerLoop(const StoreServerLoop&) = delete;
    StoreServerLoop& operator=(const StoreServerLoop&) = delete;

    void run();

    /// Closes all connections and the listener, after a failure. Must be called on the loop's thread.
    void close();

    /// Ends run(). Can be called from any thread.
    void stop();

  private:
    static constexpr std::uint64_t wakeup_id = 0;
    static constexpr std::uint64_t listener_id = 1;
    static constexpr std::uint64_t parked_id = 2;  // for the deadlines of clients that may reconnect

    struct Connection {
        Socket socket;
        sockaddr_storage address;
        StoreSession session;
        std::uint32_t watched = 0;
        std::optional<TimePoint> deadline = {};
        bool was_reset = false;
    };

    void wake() const;

    bool watch(int operation, int descriptor, std::uint64_t id, std::uint32_t events) const;

    [[nodiscard]] int time_to_next_deadline() const;

    void take(const epoll_event& event);

    /// Accepts a few connections at a time, so that many new connections do not delay the existing ones.
    void accept_some();

    /// Adds a connection at low cost, since it may be one of many that will be rejected.
    void add(Socket socket, const sockaddr_storage& address);

    /// Called if file descriptors or memory for another connection are exhausted. Closes the oldest
    /// connection that has not sent a greeting; if all have sent one, accepts no connections for 100 ms.
    void make_room();

    void serve(std::uint64_t id, std::uint32_t events);

    /// Receives available bytes. Returns whether the connection remains open.
    [[nodiscard]] bool receive(Connection& connection);

    /// Called after each change of a session: sends its output, and updates its events and deadline.
    void settle(std::uint64_t id);

    /// Sends pending output. Returns whether the connection remains open.
    [[nodiscard]] static bool send(Connection& connection);

    void set_deadline(std::uint64_t id, Connection& connection);

    void expire_deadlines();

    void remove(std::uint64_t id);

    FileDescriptor epoll_;
    FileDescriptor wakeup_;
    Socket listener_;
    ConnectionLimits limits_;
    RejectedConnectionLog log_;
    StoreSessions sessions_;
    std::unordered_map<std::uint64_t, std::unique_ptr<Connection>> connections_;
    std::set<std::uint64_t> ungreeted_;
    std::set<std::pair<TimePoint, std::uint64_t>> deadlines_;
    std::uint64_t next_id_ = parked_id + 1;
    std::atomic<bool> stopping_ = false;
    std::unique_ptr<std::array<char, 65'536>> buffer_ = std::make_unique<std::array<char, 65'536>>();
};

}  // namespace detail

/// A server of a store over TCP. It serves from construction to destruction. The destructor closes all
/// connections, so that the calls of all clients, including those of local(), throw PeerLostError at once.
/// If a client's connection is closed before the client's destructor has run, the server executes the request
/// that the client registered with set_last_will(). If the connection was reset, the server does so unless
/// the client reconnects within 2 s.
class TcpStoreServer {
  public:
    /// Starts the server. Throws ArgumentError if the token is too long, PortInUseError if the port is in
    /// use, and BackendError if the server cannot listen on the address.
    explicit TcpStoreServer(const TcpStoreServerOptions& options = {});

    TcpStoreServer(const TcpStoreServer&) = delete;
    TcpStoreServer& operator=(const TcpStoreServer&) = delete;

    ~TcpStoreServer();

    /// Returns the port on which the server listens.
    [[nodiscard]] std::uint16_t port() const noexcept { return port_; }

    /// Returns a client in this process that uses no socket.
    [[nodiscard]] std::shared_ptr<Store> local() const;

    /// Removes all keys that begin with `prefix`, except those that continue with one of `kept`.
    void erase_all(std::string_view prefix, std::span<const std::string_view> kept = {});

  private:
    void run() noexcept;

    std::shared_ptr<detail::SharedStoreMap> map_;
    std::uint16_t port_ = 0;
    std::string where_;
    std::unique_ptr<detail::StoreServerLoop> loop_;
    std::thread thread_;
};

}  // namespace DPTK_NAMESPACE

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/control/store/tcp_store_server.ipp"
#endif
