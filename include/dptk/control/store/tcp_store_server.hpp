/// Serves a store over TCP, from a thread of its own. Strangers who connect (scanners, other jobs, garbage,
/// silence) neither stop it nor slow the job, and what they can make it keep is bounded.
#pragma once

#include <sys/epoll.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <set>
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

/// Another program listens on the port.
class DPTK_EXPORT PortInUseError : public BackendError {
  public:
    using BackendError::BackendError;
};

/// Where a server listens, and to whom.
struct TcpStoreServerOptions {
    /// 0 takes a free one.
    std::uint16_t port = 0;
    /// A name or number of this machine; empty for all interfaces, IPv4 and IPv6.
    std::string bind_address = {};
    /// What clients must show, so that those of another job are refused; empty for none. It keeps mistakes
    /// out, not attackers: it travels unencrypted.
    std::string token = {};
};

namespace detail {

/// How many may be connected without having greeted; the oldest leaves first.
inline constexpr std::size_t max_strangers = 256;
inline constexpr std::size_t max_store_connections = 65'536;

struct ConnectionLimits {
    std::size_t strangers = max_strangers;
    std::size_t greeted = max_store_connections;
};

/// A quarter of the process's descriptors remains for others.
[[nodiscard]] ConnectionLimits connection_limits();

/// Tells about each stranger once, and about so many at most.
class RejectedConnectionLog {
  public:
    explicit RejectedConnectionLog(std::string where);

    void tell(const std::string& address, std::string_view complaint);

  private:
    std::string where_;
    std::set<std::string> told_;
};

/// The event loop: sockets and deadlines around StoreSessions.
class StoreServerLoop {
  public:
    using TimePoint = Deadline::Clock::time_point;

    StoreServerLoop(Socket listener, std::shared_ptr<SharedStoreMap> map, std::string token,
                    std::string where);

    StoreServerLoop(const StoreServerLoop&) = delete;
    StoreServerLoop& operator=(const StoreServerLoop&) = delete;

    void run();

    /// For the loop's own thread, after a failure: nothing is served from now on.
    void close();

    /// From any thread.
    void stop();

  private:
    static constexpr std::uint64_t wakeup_id = 0;
    static constexpr std::uint64_t listener_id = 1;

    struct Connection {
        Socket socket;
        sockaddr_storage address;
        StoreSession session;
        std::uint32_t watched = 0;
        std::optional<TimePoint> deadline = {};
    };

    void wake() const;

    bool watch(int operation, int descriptor, std::uint64_t id, std::uint32_t events) const;

    [[nodiscard]] int time_to_next_deadline() const;

    void take(const epoll_event& event);

    /// Few at a time, so that a flood of strangers does not keep the others waiting.
    void accept_some();

    /// Does no more than it must, since it may be one of many strangers.
    void add(Socket socket, const sockaddr_storage& address);

    /// There are no descriptors or no memory for another connection: the oldest stranger leaves, or
    /// nobody is let in for a while.
    void make_room();

    void serve(std::uint64_t id, std::uint32_t events);

    /// Whether the connection goes on.
    [[nodiscard]] bool receive(Connection& connection);

    /// After anything has happened to a session: sends what it has to say, and brings its place in the lists
    /// up to date.
    void settle(std::uint64_t id);

    /// Whether the connection goes on.
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
    std::set<std::uint64_t> strangers_;
    std::set<std::pair<TimePoint, std::uint64_t>> deadlines_;
    std::uint64_t next_id_ = listener_id + 1;
    std::atomic<bool> stopping_ = false;
    std::unique_ptr<std::array<char, 65'536>> buffer_ = std::make_unique<std::array<char, 65'536>>();
};

}  // namespace detail

/// Serves from construction to destruction, which ends all connections: the clients, and those who use
/// local(), then get PeerLostError at once. A client whose connection ends without its destructor's goodbye
/// has its last will carried out.
class TcpStoreServer {
  public:
    /// Throws PortInUseError, and BackendError where the address cannot be listened on.
    explicit TcpStoreServer(const TcpStoreServerOptions& options = {});

    TcpStoreServer(const TcpStoreServer&) = delete;
    TcpStoreServer& operator=(const TcpStoreServer&) = delete;

    ~TcpStoreServer();

    /// The port at which it listens.
    [[nodiscard]] std::uint16_t port() const noexcept { return port_; }

    /// A client inside this process, without a socket between.
    [[nodiscard]] std::shared_ptr<Store> local() const;

  private:
    void run() noexcept;

    void close_map(std::string_view reason);

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
