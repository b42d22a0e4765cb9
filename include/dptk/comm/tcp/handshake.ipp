#pragma once

#include "dptk/comm/tcp/handshake.hpp"

#include <cstring>
#include <random>
#include <type_traits>

#include "dptk/core/detail/text.hpp"

namespace DPTK_NAMESPACE::detail {

/// Identifies the protocol, its version, and the byte order.
inline constexpr std::uint64_t tcp_magic = 0x3170'6374'6b74'7064U;  // "dptktcp1"

inline constexpr std::size_t nonce_bytes = 16;

/// The first message of the connecting rank; its nonce follows.
struct TcpHello {
    std::uint64_t magic = tcp_magic;
    std::uint32_t from = 0;
    std::uint32_t to = 0;
};

template <class T>
[[nodiscard]] std::string bytes_of(const T& value) {
    static_assert(std::is_trivially_copyable_v<T>);
    return {reinterpret_cast<const char*>(&value), sizeof value};
}

[[nodiscard]] DPTK_INLINE std::string random_nonce() {
    std::random_device random;
    std::string nonce;
    while (nonce.size() < nonce_bytes) nonce += bytes_of(random());
    return nonce;
}

DPTK_INLINE TcpHandshake::TcpHandshake(const TcpIdentity& self, int peer, Step step)
    : self_(self), peer_(peer), connects_(step == Step::reply), step_(step), own_nonce_(random_nonce()) {}

DPTK_INLINE TcpHandshake TcpHandshake::connect(const TcpIdentity& self, int peer) {
    TcpHandshake handshake(self, peer, Step::reply);
    const TcpHello hello{.from = static_cast<std::uint32_t>(self.rank),
                         .to = static_cast<std::uint32_t>(peer)};
    handshake.output_ = bytes_of(hello) + handshake.own_nonce_;
    return handshake;
}

DPTK_INLINE TcpHandshake TcpHandshake::accept(const TcpIdentity& self) {
    return {self, -1, Step::hello};
}

DPTK_INLINE std::size_t TcpHandshake::wanted() const noexcept {
    switch (step_) {
        case Step::hello: return sizeof(TcpHello) + nonce_bytes;
        case Step::reply: return sizeof tcp_magic + nonce_bytes + sizeof(Word128);
        case Step::proof: return sizeof(Word128);
        case Step::answer: return 1;
        case Step::none: break;
    }
    return 0;
}

DPTK_INLINE void TcpHandshake::receive(std::string_view bytes) {
    switch (step_) {
        case Step::hello: return receive_hello(bytes);
        case Step::reply: return receive_reply(bytes);
        case Step::proof: return receive_proof(bytes);
        case Step::answer: return receive_answer(bytes);
        case Step::none: break;
    }
}

DPTK_INLINE void TcpHandshake::answer(bool accepts) {
    output_ = accepts ? "\1" : "\2";
    state_ = accepts ? State::accepted : State::busy;
}

DPTK_INLINE void TcpHandshake::receive_hello(std::string_view bytes) {
    TcpHello hello;
    std::memcpy(&hello, bytes.data(), sizeof hello);
    if (hello.magic != tcp_magic) return fail("it does not speak this version of dptk's protocol");
    const auto size = static_cast<std::uint32_t>(self_.size);
    const auto rank = static_cast<std::uint32_t>(self_.rank);
    if (hello.from >= size || hello.from == rank || hello.to != rank)
        return fail(text("it connects as rank ", hello.from, " to rank ", hello.to));
    peer_ = static_cast<int>(hello.from);
    peer_nonce_ = bytes.substr(sizeof hello);
    output_ = bytes_of(tcp_magic) + own_nonce_ + proof(false);
    step_ = Step::proof;
}

DPTK_INLINE void TcpHandshake::receive_reply(std::string_view bytes) {
    std::uint64_t magic = 0;
    std::memcpy(&magic, bytes.data(), sizeof magic);
    if (magic != tcp_magic) return fail("it does not speak this version of dptk's protocol");
    peer_nonce_ = bytes.substr(sizeof magic, nonce_bytes);
    if (bytes.substr(sizeof magic + nonce_bytes) != proof(false))
        return fail("it does not know the key of this job");
    output_ = proof(true);
    step_ = Step::answer;
}

DPTK_INLINE void TcpHandshake::receive_proof(std::string_view bytes) {
    if (bytes != proof(true)) return fail("it does not know the key of this job");
    state_ = State::verified;
    step_ = Step::none;
}

DPTK_INLINE void TcpHandshake::receive_answer(std::string_view bytes) {
    step_ = Step::none;
    if (bytes != "\1" && bytes != "\2") return fail("it does not speak this version of dptk's protocol");
    state_ = bytes == "\1" ? State::accepted : State::busy;
}

DPTK_INLINE void TcpHandshake::fail(std::string problem) {
    problem_ = std::move(problem);
    state_ = State::failed;
    step_ = Step::none;
    output_.clear();
}

DPTK_INLINE std::string TcpHandshake::proof(bool of_connecting) const {
    const TcpHello hello{.from = static_cast<std::uint32_t>(connects_ ? self_.rank : peer_),
                         .to = static_cast<std::uint32_t>(connects_ ? peer_ : self_.rank)};
    const std::string& connecting_nonce = connects_ ? own_nonce_ : peer_nonce_;
    const std::string& accepting_nonce = connects_ ? peer_nonce_ : own_nonce_;
    return bytes_of(siphash(
        self_.key, (of_connecting ? "c" : "a") + bytes_of(hello) + connecting_nonce + accepting_nonce));
}

}  // namespace DPTK_NAMESPACE::detail
