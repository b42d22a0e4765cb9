/// A connection that is not open yet: it is being established, or its handshake is in progress. Nothing
/// blocks, and its memory is bounded.
#pragma once

#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include "dptk/comm/tcp/handshake.hpp"
#include "dptk/control/net/socket.hpp"
#include "dptk/control/process/deadline.hpp"
#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE::detail {

class TcpPending {
  public:
    /// The time limit for a handshake, from its first byte.
    static constexpr std::chrono::seconds time_limit{10};

    /// Starts to connect to the rank `peer` at a numeric address.
    [[nodiscard]] static TcpPending connect(const TcpIdentity& self, int peer, const std::string& address,
                                            std::uint16_t port, std::chrono::milliseconds limit);

    /// Continues a connection that somebody has made to this rank.
    [[nodiscard]] static TcpPending accept(const TcpIdentity& self, Socket socket);

    [[nodiscard]] const Socket& socket() const noexcept { return socket_; }
    [[nodiscard]] const TcpHandshake& handshake() const noexcept { return handshake_; }

    /// Exchanges what the system accepts and has received. Returns the state of the handshake, which is
    /// `failed` if the connection has ended or the time limit has passed. A connecting rank that has sent its
    /// proof has no time limit: the other rank may accept it at any time.
    [[nodiscard]] TcpHandshake::State advance();

    /// Accepts a verified rank, or replies that this rank is busy.
    void answer(bool accepts);

    /// Ends the handshake, whose time is over.
    void expire() { static_cast<void>(fail(ETIMEDOUT)); }

    /// Whether the connection waits until it can be written to, rather than read from.
    [[nodiscard]] bool wants_output() const noexcept { return is_connecting_ || !output_.empty(); }

    [[nodiscard]] bool is_refused() const noexcept { return is_refused_; }
    [[nodiscard]] const std::string& problem() const noexcept {
        return problem_.empty() ? handshake_.problem() : problem_;
    }

    /// Takes the socket of an accepted connection.
    [[nodiscard]] Socket release() && { return std::move(socket_); }

  private:
    TcpPending(TcpHandshake handshake, Socket socket, std::chrono::milliseconds limit);

    static void set_up(const Socket& socket);
    [[nodiscard]] bool finish_connecting();
    [[nodiscard]] bool send();
    [[nodiscard]] bool receive();
    [[nodiscard]] bool fail(int error);

    TcpHandshake handshake_;
    Socket socket_;
    Deadline deadline_;
    bool is_connecting_ = false;
    bool is_refused_ = false;
    std::string input_;
    std::string output_;
    std::string problem_;
};

}  // namespace DPTK_NAMESPACE::detail

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/comm/tcp/pending.ipp"
#endif
