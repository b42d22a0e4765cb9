#pragma once

#include "dptk/comm/tcp/connector.hpp"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "dptk/core/detail/errno_text.hpp"
#include "dptk/core/detail/parse.hpp"
#include "dptk/core/detail/text.hpp"
#include "dptk/core/error.hpp"

namespace DPTK_NAMESPACE::detail {

DPTK_INLINE std::string TcpAddresses::to_value() const {
    std::string value = std::to_string(port);
    for (const std::string& host : hosts) value += ' ' + host;
    return value;
}

DPTK_INLINE std::optional<TcpAddresses> TcpAddresses::from_value(std::string_view value) {
    TcpAddresses addresses;
    if (!parse_number(next_word(value), addresses.port)) return std::nullopt;
    while (!value.empty()) addresses.hosts.emplace_back(next_word(value));
    if (addresses.hosts.empty()) return std::nullopt;
    return addresses;
}

DPTK_INLINE TcpConnector::TcpConnector(const TcpEvents& events, const std::string& listen_address,
                                       std::chrono::milliseconds timeout, Owner owner)
    : events_(events), timeout_(timeout), owner_(std::move(owner)) {
    std::optional<Socket> listener = listen_on(listen_address, 0);
    if (!listener) throw BackendError("cannot listen: no port is free");
    listener_ = std::move(*listener);
    port_ = listener_.local_address().port;
    events_.add(listener_.number(), EPOLLIN, {TcpEvent::Kind::listener});
}

DPTK_INLINE void TcpConnector::connect(int rank, const TcpAddresses& addresses) {
    if (!attempts_.try_emplace(rank, addresses, timeout_).second) return;
    advance_attempt(rank);
}

DPTK_INLINE void TcpConnector::handle(TcpEvent event) {
    switch (event.kind) {
        case TcpEvent::Kind::listener: return accept_all();
        case TcpEvent::Kind::guest: return advance_guest(event.number);
        case TcpEvent::Kind::attempt: return advance_attempt(static_cast<int>(event.number));
        case TcpEvent::Kind::connection:
        case TcpEvent::Kind::wake:
        case TcpEvent::Kind::failure: break;
    }
}

DPTK_INLINE void TcpConnector::advance() {
    resume_accepting();
    std::vector<int> ranks;
    for (const auto& [rank, attempt] : attempts_) ranks.push_back(rank);
    for (const int rank : ranks) advance_attempt(rank);
    std::vector<std::uint32_t> guests;
    for (const auto& [number, guest] : guests_) guests.push_back(number);
    for (const std::uint32_t number : guests) advance_guest(number);
}

DPTK_INLINE void TcpConnector::clear() noexcept {
    for (auto& [rank, attempt] : attempts_) end_pending(attempt);
    attempts_.clear();
    while (!guests_.empty()) erase_guest(guests_.begin());
}

DPTK_INLINE void TcpConnector::erase_guest(std::map<std::uint32_t, TcpPending>::iterator guest) noexcept {
    events_.remove(guest->second.socket().number());
    guests_.erase(guest);
}

DPTK_INLINE void TcpConnector::end_pending(Attempt& attempt) noexcept {
    if (attempt.pending) events_.remove(attempt.pending->socket().number());
    attempt.pending.reset();
}

DPTK_INLINE void TcpConnector::accept_all() {
    constexpr std::size_t most_guests = 64;
    while (true) {
        const int number = ::accept4(listener_.number(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (number < 0) {
            if (errno == ENOBUFS || errno == ENOMEM) return pause_accepting();
            if (errno != EMFILE && errno != ENFILE) return;
            throw BackendError(
                text("rank ", self_.rank, ": cannot accept a connection: ", errno_text(errno)));
        }
        Socket socket{FileDescriptor(number)};
        events_.add(number, EPOLLIN, {TcpEvent::Kind::guest, next_guest_});
        guests_.emplace(next_guest_++, TcpPending::accept(self_, std::move(socket)));
        const auto most = std::max(most_guests, 2 * static_cast<std::size_t>(self_.size));
        if (guests_.size() > most) erase_guest(guests_.begin());
    }
}

DPTK_INLINE void TcpConnector::pause_accepting() {
    constexpr std::chrono::milliseconds pause{100};
    events_.change(listener_.number(), 0, {TcpEvent::Kind::listener});
    accept_after_ = Clock::now() + pause;
    pauses_accepting_ = true;
}

DPTK_INLINE void TcpConnector::resume_accepting() {
    if (!pauses_accepting_ || Clock::now() < accept_after_) return;
    events_.change(listener_.number(), EPOLLIN, {TcpEvent::Kind::listener});
    pauses_accepting_ = false;
}

DPTK_INLINE void TcpConnector::advance_guest(std::uint32_t number) {
    const auto found = guests_.find(number);
    if (found == guests_.end()) return;
    TcpPending& guest = found->second;
    const TcpHandshake::State state = guest.advance();
    if (state == TcpHandshake::State::reading) {
        return events_.change(guest.socket().number(), guest.wants_output() ? EPOLLOUT : EPOLLIN,
                              {TcpEvent::Kind::guest, number});
    }
    if (state != TcpHandshake::State::verified) return erase_guest(found);
    const int rank = guest.handshake().peer();
    // If two ranks connect to each other at the same time, the connection of the lower rank remains, unless
    // the other rank cannot have accepted it yet.
    const auto own = attempts_.find(rank);
    const bool is_busy = own != attempts_.end() && own->second.pending && self_.rank < rank &&
                         own->second.pending->handshake().has_sent_proof();
    const bool accepts = !is_busy && !owner_.is_closed_to(rank);
    guest.answer(accepts);
    if (!accepts) return erase_guest(found);
    Socket socket = std::move(guest).release();
    guests_.erase(found);
    open(rank, std::move(socket));
}

DPTK_INLINE void TcpConnector::advance_attempt(int rank) {
    const auto found = attempts_.find(rank);
    if (found == attempts_.end()) return;
    Attempt& attempt = found->second;
    const TcpEvent event{TcpEvent::Kind::attempt, static_cast<std::uint32_t>(rank)};
    if (!attempt.pending) {
        if (Clock::now() < attempt.not_before) return;
        // An address at which nobody replies must not use the time of the others.
        const std::chrono::milliseconds limit = std::min<std::chrono::milliseconds>(
            TcpPending::time_limit / (attempt.addresses.hosts.size() > 1 ? 4 : 1), attempt.deadline.left());
        attempt.pending = TcpPending::connect(self_, rank, attempt.addresses.hosts[attempt.next],
                                              attempt.addresses.port, limit);
        if (attempt.pending->socket().is_open())
            events_.add(attempt.pending->socket().number(), EPOLLOUT, event);
    }
    TcpPending& pending = *attempt.pending;
    if (attempt.deadline.passed()) pending.expire();
    switch (pending.advance()) {
        case TcpHandshake::State::reading:
            return events_.change(pending.socket().number(), pending.wants_output() ? EPOLLOUT : EPOLLIN,
                                  event);
        case TcpHandshake::State::accepted: return open(rank, std::move(pending).release());
        case TcpHandshake::State::busy:
            end_pending(attempt);
            attempt.not_before = Clock::now() + attempt.pause;
            return;
        case TcpHandshake::State::verified:
        case TcpHandshake::State::failed: return fail_attempt(rank, attempt);
    }
}

DPTK_INLINE void TcpConnector::fail_attempt(int rank, Attempt& attempt) {
    constexpr std::chrono::milliseconds longest_pause{1000};
    constexpr std::size_t most_refusals = 6;  // at each address
    const std::vector<std::string>& hosts = attempt.addresses.hosts;
    const SocketAddress where{hosts[attempt.next], attempt.addresses.port};
    const std::string problem = text("rank ", self_.rank, ": cannot connect to ", owner_.label(rank), " at ",
                                     where.text(), ": ", attempt.pending->problem());
    attempt.refusals = attempt.pending->is_refused() ? attempt.refusals + 1 : 0;
    end_pending(attempt);
    if (attempt.refusals >= most_refusals * hosts.size()) {
        attempts_.erase(rank);
        return owner_.lose(rank, text(problem, ": it has ended, or closed its groups"));
    }
    if (attempt.deadline.passed()) {
        attempts_.erase(rank);
        return owner_.give_up(rank,
                              text(problem, ", tried for ", duration_text(timeout_),
                                   "; set DPTK_SOCKET_IFNAME to the network interface between these hosts"));
    }
    attempt.next = (attempt.next + 1) % hosts.size();
    if (attempt.next != 0) return advance_attempt(rank);
    attempt.not_before = Clock::now() + attempt.pause;
    attempt.pause = std::min(attempt.pause * 2, longest_pause);
}

DPTK_INLINE void TcpConnector::open(int rank, Socket socket) {
    if (const auto own = attempts_.find(rank); own != attempts_.end()) {
        end_pending(own->second);
        attempts_.erase(own);
    }
    events_.change(socket.number(), EPOLLIN, {TcpEvent::Kind::connection, static_cast<std::uint32_t>(rank)});
    owner_.open(rank, std::move(socket));
}

}  // namespace DPTK_NAMESPACE::detail
