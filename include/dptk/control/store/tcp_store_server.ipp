#pragma once

#include "dptk/control/store/tcp_store_server.hpp"

#include <sys/eventfd.h>
#include <sys/resource.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <exception>
#include <utility>

#include "dptk/control/process/background_thread.hpp"
#include "dptk/control/store/in_process_store.hpp"
#include "dptk/core/detail/errno_text.hpp"
#include "dptk/core/detail/text.hpp"
#include "dptk/core/log.hpp"

namespace DPTK_NAMESPACE::detail {

DPTK_INLINE ConnectionLimits connection_limits() {
    ConnectionLimits limits;
    rlimit descriptors{};
    if (::getrlimit(RLIMIT_NOFILE, &descriptors) != 0) return limits;
    const std::size_t share =
        std::max<std::size_t>(16, static_cast<std::size_t>(descriptors.rlim_cur) / 4 * 3);
    limits.ungreeted = std::min(limits.ungreeted, share / 4);
    limits.greeted = std::min(limits.greeted, share - limits.ungreeted);
    return limits;
}

DPTK_INLINE RejectedConnectionLog::RejectedConnectionLog(std::string where) : where_(std::move(where)) {}

DPTK_INLINE void RejectedConnectionLog::cannot_accept(int error) {
    if (std::exchange(has_been_full_, true)) return;
    log(LogLevel::warning, 0,
        text("the store on ", where_, " cannot accept a connection: ", errno_text(error)));
}

DPTK_INLINE void RejectedConnectionLog::report(const std::string& address, std::string_view rejection) {
    constexpr std::size_t most = 64;
    if (reported_.size() >= most || !reported_.insert(text(address, ": ", rejection)).second) return;
    log(LogLevel::warning, 0, text("the store on ", where_, " refused ", address, ": ", rejection));
    if (reported_.size() == most) {
        log(LogLevel::warning, 0, text("the store on ", where_, " logs no more refused connections"));
    }
}

DPTK_INLINE StoreServerLoop::StoreServerLoop(Socket listener, std::shared_ptr<SharedStoreMap> map,
                                             std::string token, std::string where)
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

DPTK_INLINE void StoreServerLoop::run() {
    std::array<epoll_event, 64> events{};
    while (!stopping_) {
        const int count = ::epoll_wait(epoll_.number(), events.data(), static_cast<int>(events.size()),
                                       time_to_next_deadline());
        for (int i = 0; i < count; ++i) take(events[static_cast<std::size_t>(i)]);
        expire_deadlines();
        for (const std::uint64_t id : sessions_.deliver(Deadline::Clock::now())) settle(id);
    }
}

DPTK_INLINE void StoreServerLoop::close() {
    connections_.clear();
    listener_.close();
}

DPTK_INLINE void StoreServerLoop::stop() {
    stopping_ = true;
    wake();
}

DPTK_INLINE void StoreServerLoop::wake() const {
    const std::uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = ::write(wakeup_.number(), &one, sizeof one);
}

DPTK_INLINE bool StoreServerLoop::watch(int operation, int descriptor, std::uint64_t id,
                                        std::uint32_t events) const {
    epoll_event event{};
    event.events = events;
    event.data.u64 = id;
    return ::epoll_ctl(epoll_.number(), operation, descriptor, &event) == 0;
}

DPTK_INLINE int StoreServerLoop::time_to_next_deadline() const {
    if (deadlines_.empty()) return -1;
    constexpr std::chrono::milliseconds longest = std::chrono::hours(1);
    const auto left = deadlines_.begin()->first - Deadline::Clock::now();
    const auto milliseconds = std::chrono::ceil<std::chrono::milliseconds>(left);
    return static_cast<int>(std::clamp(milliseconds, std::chrono::milliseconds(0), longest).count());
}

DPTK_INLINE void StoreServerLoop::take(const epoll_event& event) {
    if (event.data.u64 == wakeup_id) {
        std::uint64_t count = 0;
        [[maybe_unused]] const ssize_t read = ::read(wakeup_.number(), &count, sizeof count);
    } else if (event.data.u64 == listener_id) {
        accept_some();
    } else {
        serve(event.data.u64, event.events);
    }
}

DPTK_INLINE void StoreServerLoop::accept_some() {
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
            log_.cannot_accept(errno);
            return make_room();
        }
    }
}

DPTK_INLINE void StoreServerLoop::add(Socket socket, const sockaddr_storage& address) {
    const std::uint64_t id = next_id_++;
    const TimePoint now = Deadline::Clock::now();
    connections_[id].reset(new Connection{std::move(socket), address, {sessions_, id, now}});
    ungreeted_.insert(id);
    if (!receive(*connections_[id])) return remove(id);  // most clients have sent their greeting already
    settle(id);
    if (ungreeted_.size() > limits_.ungreeted) remove(*ungreeted_.begin());
}

DPTK_INLINE void StoreServerLoop::make_room() {
    if (!ungreeted_.empty()) return remove(*ungreeted_.begin());
    constexpr std::chrono::milliseconds pause(100);
    watch(EPOLL_CTL_MOD, listener_.number(), listener_id, 0);
    deadlines_.emplace(Deadline::Clock::now() + pause, listener_id);
}

DPTK_INLINE void StoreServerLoop::serve(std::uint64_t id, std::uint32_t events) {
    const auto found = connections_.find(id);
    if (found == connections_.end()) return;
    Connection& connection = *found->second;
    const bool reads = (connection.watched & EPOLLIN) != 0;
    if ((events & EPOLLERR) != 0) connection.was_reset = true;
    const bool lost = (events & (EPOLLERR | EPOLLHUP)) != 0 || (!reads && (events & EPOLLRDHUP) != 0);
    if (lost || (reads && (events & (EPOLLIN | EPOLLRDHUP)) != 0 && !receive(connection))) {
        return remove(id);
    }
    settle(id);
}

DPTK_INLINE bool StoreServerLoop::receive(Connection& connection) {
    std::array<char, 65'536>& buffer = *buffer_;
    const ssize_t size = ::recv(connection.socket.number(), buffer.data(), buffer.size(), 0);
    if (size == 0) return false;
    if (size < 0) {
        const bool is_open = errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR;
        connection.was_reset = !is_open;
        return is_open;
    }
    connection.session.receive({buffer.data(), static_cast<std::size_t>(size)}, Deadline::Clock::now());
    return true;
}

DPTK_INLINE void StoreServerLoop::settle(std::uint64_t id) {
    const auto found = connections_.find(id);
    if (found == connections_.end()) return;
    Connection& connection = *found->second;
    StoreSession& session = connection.session;
    if (!send(connection)) return remove(id);
    if (session.ended() && session.to_send().empty()) return remove(id);
    if (session.greeted() && ungreeted_.erase(id) > 0) connection.socket.set_up_connection();
    const std::uint32_t watched = EPOLLRDHUP | (session.wants_input() ? std::uint32_t{EPOLLIN} : 0U) |
                                  (session.to_send().empty() ? 0U : std::uint32_t{EPOLLOUT});
    if (watched != connection.watched) {
        const int operation = connection.watched == 0 ? EPOLL_CTL_ADD : EPOLL_CTL_MOD;
        if (!watch(operation, connection.socket.number(), id, watched)) return remove(id);
        connection.watched = watched;
    }
    set_deadline(id, connection);
}

DPTK_INLINE bool StoreServerLoop::send(Connection& connection) {
    StoreSession& session = connection.session;
    while (!session.to_send().empty()) {
        const std::string_view bytes = session.to_send();
        const ssize_t sent = ::send(connection.socket.number(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR) continue;
        if (sent < 0) {
            const bool is_open = errno == EAGAIN || errno == EWOULDBLOCK;
            connection.was_reset = !is_open;
            return is_open;
        }
        session.sent(static_cast<std::size_t>(sent), Deadline::Clock::now());
    }
    return true;
}

DPTK_INLINE void StoreServerLoop::set_deadline(std::uint64_t id, Connection& connection) {
    const std::optional<TimePoint> deadline = connection.session.deadline();
    if (deadline == connection.deadline) return;
    if (connection.deadline) deadlines_.erase({*connection.deadline, id});
    if (deadline) deadlines_.emplace(*deadline, id);
    connection.deadline = deadline;
}

DPTK_INLINE void StoreServerLoop::expire_deadlines() {
    const TimePoint now = Deadline::Clock::now();
    while (!deadlines_.empty() && deadlines_.begin()->first <= now) {
        const std::uint64_t id = deadlines_.begin()->second;
        deadlines_.erase(deadlines_.begin());
        if (id == listener_id) {
            watch(EPOLL_CTL_MOD, listener_.number(), listener_id, EPOLLIN);
            continue;
        }
        if (id == parked_id) {
            sessions_.expire(now);
            continue;
        }
        Connection& connection = *connections_.at(id);
        connection.deadline.reset();
        connection.session.expire(now);
        settle(id);
    }
}

DPTK_INLINE void StoreServerLoop::remove(std::uint64_t id) {
    const auto found = connections_.find(id);
    if (found == connections_.end()) return;
    const std::unique_ptr<Connection> connection = std::move(found->second);
    connections_.erase(found);
    ungreeted_.erase(id);
    if (connection->deadline) deadlines_.erase({*connection->deadline, id});
    const TimePoint now = Deadline::Clock::now();
    if (connection->was_reset && connection->session.park(now))
        deadlines_.emplace(now + reconnect_time, parked_id);
    // Closing the socket does not remove it from epoll if a child of this process has inherited it.
    if (connection->watched != 0) watch(EPOLL_CTL_DEL, connection->socket.number(), id, 0);
    const std::string& rejection = connection->session.rejection();
    if (rejection.empty()) return;
    const auto* address = reinterpret_cast<const sockaddr*>(&connection->address);
    log_.report(socket_address(address, sizeof connection->address).host, rejection);
}

}  // namespace DPTK_NAMESPACE::detail

namespace DPTK_NAMESPACE {

DPTK_INLINE TcpStoreServer::TcpStoreServer(const TcpStoreServerOptions& options)
    : map_(std::make_shared<detail::SharedStoreMap>()) {
    if (options.token.size() > detail::max_store_token_bytes) {
        throw ArgumentError(detail::text("the token of a store has ", options.token.size(),
                                         " bytes: expected at most ", detail::max_store_token_bytes));
    }
    std::optional<detail::Socket> listener = detail::listen_on(options.bind_address, options.port);
    if (!listener) {
        throw PortInUseError(detail::listening_text(options.bind_address, options.port) +
                             " is in use by another program");
    }
    port_ = listener->local_address().port;
    where_ = detail::listening_text(options.bind_address, port_);
    loop_ = std::make_unique<detail::StoreServerLoop>(std::move(*listener), map_, options.token, where_);
    thread_ = detail::start_background_thread([this] { run(); });
}

DPTK_INLINE TcpStoreServer::~TcpStoreServer() {
    loop_->stop();
    thread_.join();
    map_->close(detail::text("the store on ", where_, " has been closed"));
}

DPTK_INLINE std::shared_ptr<Store> TcpStoreServer::local() const {
    return std::make_shared<InProcessStore>(map_);
}

DPTK_INLINE void TcpStoreServer::erase_all(std::string_view prefix, std::span<const std::string_view> kept) {
    map_->erase_all(prefix, kept);
}

DPTK_INLINE void TcpStoreServer::run() noexcept {
    try {
        loop_->run();
    } catch (const std::exception& error) {
        log(LogLevel::error, 0, detail::text("the store on ", where_, " ends: ", error.what()));
        map_->close(detail::text("the store on ", where_, " has failed: ", error.what()));
        loop_->close();
    }
}

}  // namespace DPTK_NAMESPACE
