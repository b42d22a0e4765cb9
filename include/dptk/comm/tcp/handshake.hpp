/// The handshake of a connection between two ranks, without the socket: it consumes received bytes and
/// produces bytes to send. Each side proves that it knows the job's key, by a keyed hash of the random
/// numbers of both sides; the key itself is not sent. Everything that is received is checked before anything
/// is allocated for the connection.
///
/// The connecting rank sends a hello; the accepting rank replies with its proof; the connecting rank sends
/// its proof; the accepting rank replies whether it accepts the connection, or is connecting itself.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "dptk/core/config.hpp"
#include "dptk/core/detail/siphash.hpp"

namespace DPTK_NAMESPACE::detail {

/// What a rank needs for handshakes.
struct TcpIdentity {
    Word128 key = {};  ///< Random, and known to the ranks of the job only.
    int rank = 0;
    int size = 1;
};

class TcpHandshake {
  public:
    enum class State : std::uint8_t {
        reading,   ///< Needs wanted() bytes.
        verified,  ///< The other rank has proved itself, and waits for answer(). Only when accepting.
        accepted,  ///< The connection can be used.
        busy,      ///< The other rank is connecting to this one, or has. Only when connecting.
        failed,    ///< The other side is no rank of this job: see problem().
    };

    /// Starts a handshake with the rank `peer`, to which this rank has connected.
    [[nodiscard]] static TcpHandshake connect(const TcpIdentity& self, int peer);

    /// Starts a handshake with a process that has connected to this rank.
    [[nodiscard]] static TcpHandshake accept(const TcpIdentity& self);

    /// The number of bytes that receive() needs next; 0 if none.
    [[nodiscard]] std::size_t wanted() const noexcept;

    /// Processes the next wanted() bytes.
    void receive(std::string_view bytes);

    /// Accepts a verified rank, or replies that this rank is busy.
    void answer(bool accepts);

    /// Returns the bytes to send, and forgets them.
    [[nodiscard]] std::string take_output() { return std::exchange(output_, {}); }

    [[nodiscard]] State state() const noexcept { return state_; }

    /// Whether this side connects, and waits for the answer of the other side, which has all that it needs.
    [[nodiscard]] bool has_sent_proof() const noexcept { return step_ == Step::answer; }

    /// The rank of the other side, which is proved in the states `verified` and `accepted`.
    [[nodiscard]] int peer() const noexcept { return peer_; }

    [[nodiscard]] const std::string& problem() const noexcept { return problem_; }

  private:
    enum class Step : std::uint8_t { hello, reply, proof, answer, none };

    TcpHandshake(const TcpIdentity& self, int peer, Step step);

    void receive_hello(std::string_view bytes);
    void receive_reply(std::string_view bytes);
    void receive_proof(std::string_view bytes);
    void receive_answer(std::string_view bytes);
    void fail(std::string problem);

    /// Returns the proof of the connecting or of the accepting side.
    [[nodiscard]] std::string proof(bool of_connecting) const;

    TcpIdentity self_;
    int peer_;
    bool connects_;
    Step step_;
    State state_ = State::reading;
    std::string own_nonce_;
    std::string peer_nonce_;
    std::string output_;
    std::string problem_;
};

}  // namespace DPTK_NAMESPACE::detail

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/comm/tcp/handshake.ipp"
#endif
