#pragma once

#include "dptk/control/store/tcp_store.hpp"

#include <algorithm>
#include <exception>
#include <random>
#include <utility>

#include "dptk/control/store/detail/store_map.hpp"
#include "dptk/control/store/detail/store_session.hpp"
#include "dptk/core/detail/text.hpp"
#include "dptk/core/error.hpp"
#include "dptk/core/log.hpp"

namespace DPTK_NAMESPACE {

DPTK_INLINE std::string TcpStoreAddress::text() const {
    return detail::SocketAddress{host, port}.text();
}

}  // namespace DPTK_NAMESPACE

namespace DPTK_NAMESPACE::detail {

/// The result of one attempt to connect to a store: a socket, or one of two kinds of problem.
struct StoreAttempt {
    Socket socket = {};
    /// Why no server has replied.
    std::string no_answer = {};
    /// Why the program that has replied is not a store.
    std::string no_store = {};
    /// Whether no program listens at the address.
    bool is_refused = false;
};

DPTK_INLINE std::string receive_frame(const Socket& socket, std::size_t max_body, const Deadline& deadline) {
    char head[4];
    socket.receive_exactly(head, sizeof head, deadline);
    const std::size_t size = ByteReader({head, sizeof head}).u32();
    if (size > max_body)
        throw FormatError(text("it sent a message of ", size, " bytes: expected at most ", max_body));
    constexpr std::size_t piece = 65'536;
    std::string body;
    while (body.size() < size) {  // allocates as bytes arrive, since the size is untrusted
        const std::size_t before = body.size();
        body.resize(std::min(size, before + piece));
        socket.receive_exactly(body.data() + before, body.size() - before, deadline);
    }
    return body;
}

DPTK_INLINE std::string receive_greeting(const Socket& socket, const Deadline& deadline) {
    std::string magic(store_magic.size(), '\0');
    socket.receive_exactly(magic.data(), magic.size(), deadline);
    if (magic != store_magic) throw FormatError("it uses another protocol");
    return receive_frame(socket, max_greeting_bytes, deadline);
}

/// Tries once to connect to a store. Throws ArgumentError if the server refuses this client.
[[nodiscard]] DPTK_INLINE StoreAttempt try_store(const TcpStoreAddress& address, const StoreHello& hello,
                                                 std::chrono::milliseconds timeout) {
    const Deadline deadline(timeout);
    ConnectResult connected = connect_to(address.host, address.port, deadline);
    if (!connected.socket.is_open())
        return {.no_answer = connected.problem, .is_refused = connected.is_refused};
    try {
        connected.socket.send_all(encode(hello), deadline);
        const std::string body = receive_greeting(connected.socket, deadline);
        const std::optional<StoreHelloReply> reply = parse_hello_reply(body);
        if (!reply) return {.no_store = "it uses another protocol"};
        if (reply->verdict == Verdict::busy) return {.no_answer = std::string(reply->reason)};
        if (reply->verdict == Verdict::refused) {
            throw ArgumentError(
                text("the store at ", address.text(), " refuses this process: ", reply->reason));
        }
        return {.socket = std::move(connected.socket)};
    } catch (const TimeoutError&) {
        return {.no_store = text("it sent no reply within ", duration_text(timeout))};
    } catch (const PeerLostError&) {
        return {.no_store = "it closed the connection"};
    } catch (const FormatError& error) {
        return {.no_store = error.what()};
    }
}

/// Tries to connect until the deadline, since the server may start later than its clients. Calls
/// `before_retry`, which may throw, after each failed attempt.
template <class BeforeRetry>
[[nodiscard]] Socket reach_store(const TcpStoreAddress& address, const StoreHello& hello,
                                 std::chrono::milliseconds timeout, BeforeRetry&& before_retry) {
    constexpr std::chrono::milliseconds longest_pause(250);
    const Deadline deadline(timeout);
    std::chrono::milliseconds pause(20);
    while (true) {
        const auto time = std::clamp(deadline.left(), std::chrono::milliseconds(1), default_reply_timeout);
        StoreAttempt attempt = try_store(address, hello, time);
        if (attempt.socket.is_open()) return std::move(attempt.socket);
        if (deadline.left() <= pause) {
            AwakeClock::sleep_for(deadline.left());
            if (!attempt.no_store.empty()) {
                throw TimeoutError(text("the program listening at ", address.text(),
                                        " is not a dptk store: ", attempt.no_store));
            }
            throw TimeoutError(text("no answer from ", address.text(), " within ", duration_text(timeout),
                                    " (", attempt.no_answer, ")"));
        }
        before_retry();
        AwakeClock::sleep_for(pause);
        pause = std::min(pause * 3 / 2, longest_pause);
    }
}

}  // namespace DPTK_NAMESPACE::detail

namespace DPTK_NAMESPACE {

DPTK_INLINE std::shared_ptr<TcpStore> TcpStore::connect(TcpStoreAddress address, TcpStoreOptions options) {
    std::shared_ptr<TcpStore> store(new TcpStore(std::move(address), std::move(options)));
    store->socket_ = detail::reach_store(store->address_, store->hello(), store->options_.timeout, [] {});
    return store;
}

DPTK_INLINE TcpStore::~TcpStore() {
    try {
        if (socket_.is_open()) send_goodbye();
    } catch (...) {
        // The server has ended, or will consider this client lost.
    }
}

DPTK_INLINE void TcpStore::send_goodbye() {
    const detail::StoreRequest goodbye;
    const auto send = [&] {
        socket_.send_all(encode(goodbye), detail::Deadline(std::chrono::milliseconds(100)));
    };
    try {
        send();
    } catch (const detail::ConnectionResetError& error) {
        reconnect(goodbye, error.what());
        send();
    }
}

DPTK_INLINE void TcpStore::set_reply_timeout(std::chrono::milliseconds timeout) {
    const std::lock_guard lock(mutex_);
    reply_timeout_ = timeout;
}

DPTK_INLINE void TcpStore::set(std::string_view key, std::string_view value) {
    check(key, value);
    call({detail::StoreOperation::set, 0, {key, value}});
}

DPTK_INLINE std::string TcpStore::get(std::string_view key, std::chrono::milliseconds timeout) {
    detail::check_store_key(key);
    Answer answer = call({detail::StoreOperation::get, timeout.count(), {key}}, timeout);
    if (answer.status == detail::StoreStatus::done) return std::move(answer.text);
    const std::string missing(key);
    detail::throw_missing_keys({&missing, 1}, timeout, where());
}

DPTK_INLINE std::optional<std::string> TcpStore::find(std::string_view key) {
    detail::check_store_key(key);
    Answer answer = call({detail::StoreOperation::find, 0, {key}});
    if (answer.status == detail::StoreStatus::absent) return std::nullopt;
    return std::move(answer.text);
}

DPTK_INLINE std::int64_t TcpStore::add(std::string_view key, std::int64_t amount) {
    detail::check_store_key(key);
    return call({detail::StoreOperation::add, amount, {key}}).number;
}

DPTK_INLINE std::string TcpStore::compare_and_set(std::string_view key, std::string_view expected,
                                                  std::string_view desired) {
    check(key, expected);
    check(key, desired);
    return call({detail::StoreOperation::compare_and_set, 0, {key, expected, desired}}).text;
}

DPTK_INLINE void TcpStore::wait(std::span<const std::string> keys, std::chrono::milliseconds timeout) {
    for (const std::string& key : keys) detail::check_store_key(key);
    const detail::Deadline deadline(timeout);
    std::vector<std::string> missing;
    while (!keys.empty()) {
        const auto some = keys.first(std::min(keys.size(), detail::max_request_fields));
        keys = keys.subspan(some.size());
        const auto left = deadline.left();
        detail::StoreRequest request{detail::StoreOperation::wait, left.count(), {}};
        request.fields.assign(some.begin(), some.end());
        for (const std::uint32_t index : call(request, left).missing) missing.push_back(some[index]);
    }
    if (!missing.empty()) detail::throw_missing_keys(missing, timeout, where());
}

DPTK_INLINE bool TcpStore::erase(std::string_view key) {
    detail::check_store_key(key);
    return call({detail::StoreOperation::erase, 0, {key}}).status == detail::StoreStatus::done;
}

DPTK_INLINE void TcpStore::set_last_will(std::string_view key, std::string_view value) {
    register_will(key, value, false);
}

DPTK_INLINE void TcpStore::set_will_of_process(std::string_view key, std::string_view value) {
    register_will(key, value, true);
}

DPTK_INLINE void TcpStore::register_will(std::string_view key, std::string_view value, bool outlives_reset) {
    if (!key.empty()) detail::check_store_key(key);
    detail::check_store_value(key, value);
    call({detail::StoreOperation::last_will, outlives_reset ? 1 : 0, {key, value}});
    has_will_ = !key.empty();
}

DPTK_INLINE StoreConnection TcpStore::connection() {
    const std::lock_guard lock(mutex_);
    return {socket_.local_address().host, socket_.peer_address().host};
}

DPTK_INLINE std::shared_ptr<Store> TcpStore::clone() {
    const std::lock_guard lock(mutex_);
    check_alive();
    try {
        std::shared_ptr<TcpStore> copy(new TcpStore(address_, options_));
        copy->socket_ = detail::reach_store(address_, copy->hello(), reply_timeout_, [&] {
            exchange_or_fail({detail::StoreOperation::find, 0, {"alive"}}, reply_timeout_);
        });
        copy->reply_timeout_ = reply_timeout_;
        return copy;
    } catch (const TimeoutError&) {
        throw PeerLostError(detail::text("lost the store at ", address_.text(),
                                         ": it has not accepted another connection within ",
                                         detail::duration_text(reply_timeout_)));
    }
}

DPTK_INLINE TcpStore::TcpStore(TcpStoreAddress address, TcpStoreOptions options)
    : address_(std::move(address)), options_(std::move(options)) {
    std::random_device random;
    client_ = std::uint64_t{random()} << 32 | random() | 1;
}

DPTK_INLINE detail::StoreHello TcpStore::hello() const {
    return {.token = options_.token, .client = client_};
}

DPTK_INLINE void TcpStore::check(std::string_view key, std::string_view value) {
    detail::check_store_key(key);
    detail::check_store_value(key, value);
}

DPTK_INLINE std::string TcpStore::where() const {
    return " in the store at " + address_.text();
}

DPTK_INLINE void TcpStore::check_alive() const {
    if (!socket_.is_open()) throw PeerLostError(problem_);
}

DPTK_INLINE TcpStore::Answer TcpStore::call(const detail::StoreRequest& request,
                                            std::chrono::milliseconds timeout) {
    const std::lock_guard lock(mutex_);
    check_alive();
    timeout = std::clamp(timeout, std::chrono::milliseconds(0), detail::longest_wait);
    Answer answer = exchange_or_fail(request, timeout + reply_timeout_);
    if (answer.status == detail::StoreStatus::rejected) throw ArgumentError(answer.text + where());
    return answer;
}

DPTK_INLINE TcpStore::Answer TcpStore::exchange_or_fail(detail::StoreRequest request,
                                                        std::chrono::milliseconds timeout) {
    const detail::Deadline deadline(timeout);
    request.sequence = ++sequence_;
    try {
        while (true) {
            try {
                return exchange(request, deadline);
            } catch (const detail::ConnectionResetError& error) {
                reconnect(request, error.what());
                const bool waits = request.operation == detail::StoreOperation::get ||
                                   request.operation == detail::StoreOperation::wait;
                const std::int64_t left = (deadline.left() - reply_timeout_).count();
                if (waits) request.number = std::max<std::int64_t>(0, std::min(left, request.number));
            }
        }
    } catch (const TimeoutError&) {
        fail(detail::text("no reply for ", detail::duration_text(timeout)));
    } catch (const std::exception& error) {
        fail(error.what());
    }
}

DPTK_INLINE void TcpStore::reconnect(const detail::StoreRequest& request, const std::string& problem) {
    constexpr std::chrono::milliseconds pause(50);
    detail::StoreHello again = hello();
    again.reconnects = has_will_ || !detail::is_repeatable(request.operation);
    const detail::Deadline deadline(
        std::min<std::chrono::milliseconds>(reply_timeout_, detail::reconnect_time));
    while (!deadline.passed()) {
        detail::StoreAttempt attempt =
            detail::try_store(address_, again, std::max(deadline.left(), std::chrono::milliseconds(1)));
        if (attempt.socket.is_open()) {
            socket_ = std::move(attempt.socket);
            return log(LogLevel::warning, -1,
                       detail::text("reconnected to the store at ", address_.text(), " (", problem, ")"));
        }
        if (attempt.is_refused) break;  // the server has ended
        detail::AwakeClock::sleep_for(pause);
    }
    throw PeerLostError(problem);
}

DPTK_INLINE TcpStore::Answer TcpStore::exchange(const detail::StoreRequest& request,
                                                const detail::Deadline& deadline) const {
    socket_.send_all(encode(request), deadline);
    const std::string body = detail::receive_frame(socket_, detail::max_reply_bytes, deadline);
    std::optional<detail::StoreReply> reply = detail::parse_reply(body);
    if (!reply) throw FormatError("its reply is invalid");
    for (const std::uint32_t index : reply->missing) {
        if (index >= request.fields.size()) throw FormatError("its reply is invalid");
    }
    return {reply->status, reply->number, std::string(reply->text), std::move(reply->missing)};
}

DPTK_INLINE void TcpStore::fail(std::string_view reason) {
    socket_.close();
    problem_ = detail::text("lost the store at ", address_.text(), ": ", reason);
    throw PeerLostError(problem_);
}

}  // namespace DPTK_NAMESPACE
