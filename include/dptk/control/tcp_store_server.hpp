/// Serves a store over TCP, from a thread of its own. Strangers who connect (scanners, other jobs, garbage,
/// silence) neither stop it nor slow the job, and what they can make it keep is bounded.
#pragma once

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <thread>
#include <unordered_map>
#include <utility>

#include "dptk/control/deadline.hpp"
#include "dptk/control/in_process_store.hpp"
#include "dptk/control/quiet_thread.hpp"
#include "dptk/control/shared_store_map.hpp"
#include "dptk/control/socket.hpp"
#include "dptk/control/store.hpp"
#include "dptk/control/store_session.hpp"
#include "dptk/core/error.hpp"
#include "dptk/core/export.hpp"
#include "dptk/core/log.hpp"
#include "dptk/core/text.hpp"

namespace dptk {

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
[[nodiscard]] inline ConnectionLimits connection_limits() {
    ConnectionLimits limits;
    rlimit descriptors{};
    if (::getrlimit(RLIMIT_NOFILE, &descriptors) != 0) return limits;
    const std::size_t share =
        std::max<std::size_t>(16, static_cast<std::size_t>(descriptors.rlim_cur) / 4 * 3);
    limits.strangers = std::min(limits.strangers, share / 4);
    limits.greeted = std::min(limits.greeted, share - limits.strangers);
    return limits;
}

/// Tells about each stranger once, and about so many at most.
class StrangerLog {
  public:
    explicit StrangerLog(std::string where) : where_(std::move(where)) {}

    void tell(const std::string& address, std::string_view complaint) {
        constexpr std::size_t most = 64;
        if (told_.size() >= most || !told_.insert(text(address, ": ", complaint)).second) return;
        log(LogLevel::warning, 0, text("the store on ", where_, " refused ", address, ": ", complaint));
        if (told_.size() == most) {
            log(LogLevel::warning, 0, text("the store on ", where_, " tells of no more that it refuses"));
        }
    }

  private:
    std::string where_;
    std::set<std::string> told_;
};

/// The event loop: sockets and deadlines around StoreSessions.
class StoreServerLoop {
  public:
    using TimePoint = Deadline::Clock::time_point;

    StoreServerLoop(Socket listener, std::shared_ptr<SharedStoreMap> map, std::string token,
                    std::string where)
        : epoll_(::epoll_create1(EPOLL_CLOEXEC)),
          wakeup_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
          listener_(std::move(listener)),
          limits_(connection_limits()),
          log_(std::move(where)),
          sessions_(std::move(map), std::move(token), limits_.greeted, [this] { wake(); }) {
        if (!epoll_.is_open() || !wakeup_.is_open()) {
            throw BackendError("cannot serve a store: " + errno_text(errno));
        }
        watch(EPOLL_CTL_ADD, wakeup_.number(), wakeup_id, EPOLLIN);
        watch(EPOLL_CTL_ADD, listener_.number(), listener_id, EPOLLIN);
    }

    StoreServerLoop(const StoreServerLoop&) = delete;
    StoreServerLoop& operator=(const StoreServerLoop&) = delete;

    void run() {
        std::array<epoll_event, 64> events{};
        while (!stopping_) {
            const int count = ::epoll_wait(epoll_.number(), events.data(), static_cast<int>(events.size()),
                                           time_to_next_deadline());
            for (int i = 0; i < count; ++i) take(events[static_cast<std::size_t>(i)]);
            expire_deadlines();
            for (const std::uint64_t id : sessions_.deliver(Deadline::Clock::now())) settle(id);
        }
    }

    /// For the loop's own thread, after a failure: nothing is served from now on.
    void close() {
        connections_.clear();
        listener_.close();
    }

    /// From any thread.
    void stop() {
        stopping_ = true;
        wake();
    }

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

    void wake() const {
        const std::uint64_t one = 1;
        [[maybe_unused]] const ssize_t written = ::write(wakeup_.number(), &one, sizeof one);
    }

    bool watch(int operation, int descriptor, std::uint64_t id, std::uint32_t events) const {
        epoll_event event{};
        event.events = events;
        event.data.u64 = id;
        return ::epoll_ctl(epoll_.number(), operation, descriptor, &event) == 0;
    }

    [[nodiscard]] int time_to_next_deadline() const {
        if (deadlines_.empty()) return -1;
        constexpr std::chrono::milliseconds longest = std::chrono::hours(1);
        const auto left = deadlines_.begin()->first - Deadline::Clock::now();
        const auto milliseconds = std::chrono::ceil<std::chrono::milliseconds>(left);
        return static_cast<int>(std::clamp(milliseconds, std::chrono::milliseconds(0), longest).count());
    }

    void take(const epoll_event& event) {
        if (event.data.u64 == wakeup_id) {
            std::uint64_t count = 0;
            [[maybe_unused]] const ssize_t read = ::read(wakeup_.number(), &count, sizeof count);
        } else if (event.data.u64 == listener_id) {
            accept_some();
        } else {
            serve(event.data.u64, event.events);
        }
    }

    /// Few at a time, so that a flood of strangers does not keep the others waiting.
    void accept_some() {
        constexpr int at_a_time = 8;
        for (int i = 0; i < at_a_time; ++i) {
            sockaddr_storage address{};
            socklen_t size = sizeof address;
            const int number = ::accept4(listener_.number(), reinterpret_cast<sockaddr*>(&address), &size,
                                         SOCK_CLOEXEC | SOCK_NONBLOCK);
            if (number >= 0) {
                add(Socket(FileDescriptor(number)), address);
            } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
                return;
            } else if (errno != EINTR && errno != ECONNABORTED) {
                return make_room();
            }
        }
    }

    /// Does no more than it must, since it may be one of many strangers.
    void add(Socket socket, const sockaddr_storage& address) {
        const std::uint64_t id = next_id_++;
        const TimePoint now = Deadline::Clock::now();
        connections_[id].reset(new Connection{std::move(socket), address, {sessions_, id, now}});
        strangers_.insert(id);
        if (!receive(*connections_[id])) return remove(id);  // most have said something already
        settle(id);
        if (strangers_.size() > limits_.strangers) remove(*strangers_.begin());
    }

    /// There are no descriptors or no memory for another connection: the oldest stranger leaves, or
    /// nobody is let in for a while.
    void make_room() {
        if (!strangers_.empty()) return remove(*strangers_.begin());
        constexpr std::chrono::milliseconds pause(100);
        watch(EPOLL_CTL_MOD, listener_.number(), listener_id, 0);
        deadlines_.emplace(Deadline::Clock::now() + pause, listener_id);
    }

    void serve(std::uint64_t id, std::uint32_t events) {
        const auto found = connections_.find(id);
        if (found == connections_.end()) return;
        Connection& connection = *found->second;
        const bool reads = (connection.watched & EPOLLIN) != 0;
        const bool lost = (events & (EPOLLERR | EPOLLHUP)) != 0 || (!reads && (events & EPOLLRDHUP) != 0);
        if (lost || (reads && (events & (EPOLLIN | EPOLLRDHUP)) != 0 && !receive(connection))) {
            return remove(id);
        }
        settle(id);
    }

    /// Whether the connection goes on.
    [[nodiscard]] bool receive(Connection& connection) {
        std::array<char, 65'536>& buffer = *buffer_;
        const ssize_t size = ::recv(connection.socket.number(), buffer.data(), buffer.size(), 0);
        if (size == 0) return false;
        if (size < 0) return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR;
        connection.session.receive({buffer.data(), static_cast<std::size_t>(size)}, Deadline::Clock::now());
        return true;
    }

    /// After anything has happened to a session: sends what it has to say, and brings its place in the lists
    /// up to date.
    void settle(std::uint64_t id) {
        const auto found = connections_.find(id);
        if (found == connections_.end()) return;
        Connection& connection = *found->second;
        StoreSession& session = connection.session;
        if (!send(connection)) return remove(id);
        if (session.ended() && session.to_send().empty()) return remove(id);
        if (session.greeted() && strangers_.erase(id) > 0) connection.socket.set_up_connection();
        const std::uint32_t watched = EPOLLRDHUP | (session.wants_input() ? std::uint32_t{EPOLLIN} : 0U) |
                                      (session.to_send().empty() ? 0U : std::uint32_t{EPOLLOUT});
        if (watched != connection.watched) {
            const int operation = connection.watched == 0 ? EPOLL_CTL_ADD : EPOLL_CTL_MOD;
            if (!watch(operation, connection.socket.number(), id, watched)) return remove(id);
            connection.watched = watched;
        }
        set_deadline(id, connection);
    }

    /// Whether the connection goes on.
    [[nodiscard]] static bool send(Connection& connection) {
        StoreSession& session = connection.session;
        while (!session.to_send().empty()) {
            const std::string_view bytes = session.to_send();
            const ssize_t sent = ::send(connection.socket.number(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
            if (sent < 0 && errno == EINTR) continue;
            if (sent < 0) return errno == EAGAIN || errno == EWOULDBLOCK;
            session.sent(static_cast<std::size_t>(sent), Deadline::Clock::now());
        }
        return true;
    }

    void set_deadline(std::uint64_t id, Connection& connection) {
        const std::optional<TimePoint> deadline = connection.session.deadline();
        if (deadline == connection.deadline) return;
        if (connection.deadline) deadlines_.erase({*connection.deadline, id});
        if (deadline) deadlines_.emplace(*deadline, id);
        connection.deadline = deadline;
    }

    void expire_deadlines() {
        const TimePoint now = Deadline::Clock::now();
        while (!deadlines_.empty() && deadlines_.begin()->first <= now) {
            const std::uint64_t id = deadlines_.begin()->second;
            deadlines_.erase(deadlines_.begin());
            if (id == listener_id) {
                watch(EPOLL_CTL_MOD, listener_.number(), listener_id, EPOLLIN);
                continue;
            }
            Connection& connection = *connections_.at(id);
            connection.deadline.reset();
            connection.session.expire(now);
            settle(id);
        }
    }

    void remove(std::uint64_t id) {
        const auto found = connections_.find(id);
        if (found == connections_.end()) return;
        const std::unique_ptr<Connection> connection = std::move(found->second);
        connections_.erase(found);
        strangers_.erase(id);
        if (connection->deadline) deadlines_.erase({*connection->deadline, id});
        // Closing alone leaves the watch in place where a child of this process holds the socket, too.
        if (connection->watched != 0) watch(EPOLL_CTL_DEL, connection->socket.number(), id, 0);
        const std::string& complaint = connection->session.complaint();
        if (complaint.empty()) return;
        const auto* address = reinterpret_cast<const sockaddr*>(&connection->address);
        log_.tell(socket_address(address, sizeof connection->address).host, complaint);
    }

    FileDescriptor epoll_;
    FileDescriptor wakeup_;
    Socket listener_;
    ConnectionLimits limits_;
    StrangerLog log_;
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
    explicit TcpStoreServer(const TcpStoreServerOptions& options = {})
        : map_(std::make_shared<detail::SharedStoreMap>()) {
        if (options.token.size() > detail::max_store_token_bytes) {
            throw ArgumentError(detail::text("the token of a store has ", options.token.size(),
                                             " bytes, where at most ", detail::max_store_token_bytes,
                                             " belong"));
        }
        std::optional<detail::Socket> listener = detail::listen_on(options.bind_address, options.port);
        if (!listener) {
            throw PortInUseError(detail::listening_text(options.bind_address, options.port) +
                                 " is in use by another program");
        }
        port_ = listener->local_address().port;
        where_ = detail::listening_text(options.bind_address, port_);
        loop_ = std::make_unique<detail::StoreServerLoop>(std::move(*listener), map_, options.token, where_);
        thread_ = detail::start_quiet_thread([this] { run(); });
    }

    TcpStoreServer(const TcpStoreServer&) = delete;
    TcpStoreServer& operator=(const TcpStoreServer&) = delete;

    ~TcpStoreServer() {
        loop_->stop();
        thread_.join();
        close_map("it has been closed");
    }

    /// The port at which it listens.
    [[nodiscard]] std::uint16_t port() const noexcept { return port_; }

    /// A client inside this process, without a socket between.
    [[nodiscard]] std::shared_ptr<Store> local() const { return std::make_shared<InProcessStore>(map_); }

  private:
    void run() noexcept {
        try {
            loop_->run();
        } catch (const std::exception& error) {
            log(LogLevel::error, 0, detail::text("the store on ", where_, " ends: ", error.what()));
            close_map(error.what());
            loop_->close();
        }
    }

    void close_map(std::string_view reason) {
        map_->close(detail::text("the store on ", where_, " is gone: ", reason));
    }

    std::shared_ptr<detail::SharedStoreMap> map_;
    std::uint16_t port_ = 0;
    std::string where_;
    std::unique_ptr<detail::StoreServerLoop> loop_;
    std::thread thread_;
};

}  // namespace dptk
