#pragma once

#include "dptk/comm/tcp/pending.hpp"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <utility>

#include "dptk/core/detail/errno_text.hpp"
#include "dptk/core/detail/text.hpp"
#include "dptk/core/error.hpp"

namespace DPTK_NAMESPACE::detail {

DPTK_INLINE TcpPending::TcpPending(TcpHandshake handshake, Socket socket, std::chrono::milliseconds limit)
    : handshake_(std::move(handshake)),
      socket_(std::move(socket)),
      deadline_(limit),
      output_(handshake_.take_output()) {}

DPTK_INLINE TcpPending TcpPending::connect(const TcpIdentity& self, int peer, const std::string& address,
                                           std::uint16_t port, std::chrono::milliseconds limit) {
    TcpPending pending(TcpHandshake::connect(self, peer), {}, limit);
    const ResolvedAddresses resolved = resolve(address.c_str(), port, AF_UNSPEC, AI_NUMERICHOST);
    if (resolved.first == nullptr) {
        pending.problem_ = resolved.problem;
        return pending;
    }
    pending.socket_ = open_socket(resolved.first->ai_family);
    if (!pending.socket_.is_open()) {
        if (errno == EMFILE || errno == ENFILE)
            throw BackendError(
                text("rank ", self.rank, ": cannot connect to rank ", peer, ": ", errno_text(errno)));
        static_cast<void>(pending.fail(errno));
    } else if (::connect(pending.socket_.number(), resolved.first->ai_addr, resolved.first->ai_addrlen) ==
                   0 ||
               errno == EINPROGRESS || errno == EINTR) {
        pending.is_connecting_ = true;
    } else {
        static_cast<void>(pending.fail(errno));
    }
    return pending;
}

DPTK_INLINE TcpPending TcpPending::accept(const TcpIdentity& self, Socket socket) {
    set_up(socket);
    return {TcpHandshake::accept(self), std::move(socket), time_limit};
}

DPTK_INLINE TcpHandshake::State TcpPending::advance() {
    if (problem_.empty() && deadline_.passed() && !handshake_.has_sent_proof()) expire();
    if (!problem_.empty()) return TcpHandshake::State::failed;
    if (!finish_connecting() || !send() || !receive()) return TcpHandshake::State::failed;
    return is_connecting_ ? TcpHandshake::State::reading : handshake_.state();
}

DPTK_INLINE void TcpPending::answer(bool accepts) {
    handshake_.answer(accepts);
    output_ += handshake_.take_output();
    static_cast<void>(send());
}

DPTK_INLINE void TcpPending::set_up(const Socket& socket) {
    socket.set_up_connection();
    // A rank that computes reads nothing, for as long as it likes.
    socket.set_option(IPPROTO_TCP, TCP_USER_TIMEOUT, 0);
}

/// Returns false if the connection has failed.
DPTK_INLINE bool TcpPending::finish_connecting() {
    if (!is_connecting_) return true;
    if (!socket_.wait_for(POLLOUT, Deadline(std::chrono::milliseconds(0)))) return true;
    int error = 0;
    socklen_t size = sizeof error;
    if (::getsockopt(socket_.number(), SOL_SOCKET, SO_ERROR, &error, &size) != 0) error = errno;
    // If no program listens on a local port, TCP may connect a socket to itself.
    if (error == 0 && socket_.local_address() == socket_.peer_address()) error = ECONNREFUSED;
    if (error != 0) return fail(error);
    is_connecting_ = false;
    set_up(socket_);
    return true;
}

DPTK_INLINE bool TcpPending::send() {
    while (!is_connecting_ && !output_.empty()) {
        const ssize_t sent = ::send(socket_.number(), output_.data(), output_.size(), MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR) continue;
        if (sent < 0) return errno == EAGAIN || errno == EWOULDBLOCK || fail(errno);
        output_.erase(0, static_cast<std::size_t>(sent));
    }
    return true;
}

DPTK_INLINE bool TcpPending::receive() {
    // Reads no byte beyond the handshake, since messages follow.
    while (!is_connecting_ && handshake_.wanted() != 0) {
        std::array<char, 64> bytes;
        const ssize_t received =
            ::recv(socket_.number(), bytes.data(), handshake_.wanted() - input_.size(), MSG_DONTWAIT);
        if (received < 0 && errno == EINTR) continue;
        if (received < 0) return errno == EAGAIN || errno == EWOULDBLOCK || fail(errno);
        if (received == 0) {
            problem_ = "the other side has closed the connection";
            return false;
        }
        input_.append(bytes.data(), static_cast<std::size_t>(received));
        if (input_.size() < handshake_.wanted()) continue;
        handshake_.receive(std::exchange(input_, {}));
        output_ += handshake_.take_output();
        if (!send()) return false;
    }
    return handshake_.state() != TcpHandshake::State::failed;
}

/// Returns false.
DPTK_INLINE bool TcpPending::fail(int error) {
    problem_ = errno_text(error);
    is_refused_ = error == ECONNREFUSED;
    return false;
}

}  // namespace DPTK_NAMESPACE::detail
