// TCP stores: connections from other programs, tokens, lost clients and lost servers.
#include <doctest/doctest.h>
#include <dptk/control/store/detail/store_session.hpp>
#include <dptk/control/store/tcp_store.hpp>
#include <dptk/control/store/tcp_store_server.hpp>

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "control/store/store_support.hpp"
#include "support/no_more_files.hpp"

using namespace std::chrono_literals;
using dptk::TcpStore;
using dptk::TcpStoreServer;
using dptk::detail::Deadline;
using dptk::detail::Socket;
using dptk::detail::StoreOperation;

namespace {

/// Opens a connection that has not sent a greeting.
Socket stranger(std::uint16_t port) {
    auto connected = dptk::detail::connect_to("127.0.0.1", port, Deadline(30s));
    REQUIRE_MESSAGE(connected.socket.is_open(), connected.problem);
    return std::move(connected.socket);
}

void send(const Socket& socket, std::string_view bytes) {
    socket.send_all(bytes, Deadline(30s));
}

/// Opens a connection and exchanges greetings.
Socket greeted(std::uint16_t port) {
    Socket socket = stranger(port);
    send(socket, encode(dptk::detail::StoreHello{}));
    static_cast<void>(dptk::detail::receive_greeting(socket, Deadline(30s)));
    return socket;
}

/// Returns whether the server closes the connection within the time.
bool is_closed(const Socket& socket, std::chrono::milliseconds time = 30s) {
    char byte = 0;
    try {
        while (true) socket.receive_exactly(&byte, 1, Deadline(time));
    } catch (const dptk::PeerLostError&) {
        return true;
    } catch (const dptk::TimeoutError&) {
        return false;
    }
}

bool serves(const dptk::TcpStoreServer& server) {
    const auto client = connect(server);
    client->set("still", "serving");
    return client->get("still", 0ms) == "serving";
}

/// A program that listens and is not a store. It calls `greet` for each connection, and keeps the
/// connections open.
class Impostor {
  public:
    template <class Greet>
    explicit Impostor(Greet greet) : listener_(std::move(*dptk::detail::listen_on("127.0.0.1", 0))) {
        thread_ = std::thread([this, greet] {
            while (!stopping_) {
                if (!listener_.wait_for(POLLIN, Deadline(10ms))) continue;
                Socket socket(dptk::detail::FileDescriptor(
                    ::accept4(listener_.number(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK)));
                greet(socket);
                if (socket.is_open()) kept_.push_back(std::move(socket));
            }
        });
    }
    ~Impostor() {
        stopping_ = true;
        thread_.join();
    }

    [[nodiscard]] dptk::TcpStoreAddress address() const {
        return {"127.0.0.1", listener_.local_address().port};
    }

  private:
    Socket listener_;
    std::atomic<bool> stopping_ = false;
    std::vector<Socket> kept_;
    std::thread thread_;
};

std::string connect_error(const dptk::TcpStoreAddress& address, std::chrono::milliseconds timeout) {
    return message_of<dptk::TimeoutError>(
        [&] { static_cast<void>(dptk::TcpStore::connect(address, {.timeout = timeout})); });
}

// Below the range from which the system gives ports to Gloo's listeners and to programs that connect: a
// listener of another test cannot get this port while a test connects to it.
std::uint16_t unused_port() {
    const auto first = static_cast<std::uint16_t>(10'000 + ::getpid() % 10'000);
    for (std::uint16_t port = first;; ++port) {
        try {
            return dptk::TcpStoreServer({.port = port}).port();
        } catch (const dptk::BackendError&) {
            if (port == first + 1000) throw;
        }
    }
}

}  // namespace

TEST_CASE("a wrong token is refused at once, and its address is logged once") {
    const RecordedLog log;
    const dptk::TcpStoreServer server({.token = "right"});
    for (const std::string token : {"wrong", "", "righ", "right2", "wrong"}) {
        CHECK(contains(message_of<dptk::ArgumentError>([&] { connect(server, token); }), "wrong token"));
    }
    CHECK_NOTHROW(connect(server, "right")->set("x", "y"));
    REQUIRE(log.lines().size() == 1);
    CHECK(contains(log.lines()[0], "refused 127.0.0.1: wrong token"));
    CHECK(contains(log.lines()[0], "port " + std::to_string(server.port())));
}

TEST_CASE("a client with a token is refused by a server without one") {
    const RecordedLog log;
    const dptk::TcpStoreServer server;
    CHECK_THROWS_AS(connect(server, "mine"), dptk::ArgumentError);
}

TEST_CASE("a client with another protocol number is refused with a reason") {
    const RecordedLog log;
    const dptk::TcpStoreServer server;
    const Socket socket = stranger(server.port());
    send(socket, encode(dptk::detail::StoreHello{77, "future"}));
    const std::string body = dptk::detail::receive_greeting(socket, Deadline(30s));
    const auto reply = dptk::detail::parse_hello_reply(body);
    REQUIRE(reply);
    CHECK(reply->verdict == dptk::detail::Verdict::refused);
    CHECK(contains(reply->reason, "protocol 77"));
    CHECK(is_closed(socket));
}

TEST_CASE("invalid bytes close the connection, before and after the greeting") {
    const RecordedLog log;
    const dptk::TcpStoreServer server;
    const Socket before = stranger(server.port());
    send(before, "GET / HTTP/1.1\r\n");
    CHECK(is_closed(before));
    const Socket long_hello = stranger(server.port());
    send(long_hello, "dptkstor\xff\xff\xff\x7f");
    CHECK(is_closed(long_hello));
    const Socket after = greeted(server.port());
    send(after, std::string(100, '\x01'));
    CHECK(is_closed(after));
    const Socket long_request = greeted(server.port());
    send(long_request, std::string("\x00\x00\x00\x40", 4));
    CHECK(is_closed(long_request));
    CHECK(serves(server));
    CHECK(log.lines().size() == 1);
}

TEST_CASE("a client is served despite 2000 connections with invalid, incomplete or no data") {
    const RecordedLog log;
    const dptk::TcpStoreServer server;
    const auto client = connect(server);
    const std::string hello = encode(dptk::detail::StoreHello{});
    const std::string request = encode(dptk::detail::StoreRequest{StoreOperation::set, 0, {"stranger", "x"}});
    const std::vector<std::string> says = {"", "\x16\x03\x01garbage", hello.substr(0, 9),
                                           hello + request.substr(0, request.size() - 1)};
    std::vector<Socket> open(300);
    for (std::size_t i = 0; i < 2000; ++i) {
        Socket& socket = open[i % open.size()];
        socket = stranger(server.port());
        try {
            send(socket, says[i % says.size()]);
        } catch (const dptk::PeerLostError&) {
            // The server has already closed the connection.
        }
        if (i % 10 == 0) CHECK(client->add("served", 1) == static_cast<std::int64_t>(i / 10 + 1));
    }
    CHECK(serves(server));
    CHECK_FALSE(client->find("stranger"));
    CHECK(log.lines().size() <= 66);
}

TEST_CASE("of too many connections without greeting, the oldest is closed first") {
    const dptk::TcpStoreServer server;
    const std::size_t limit = dptk::detail::connection_limits().ungreeted;
    std::vector<Socket> open;
    for (std::size_t i = 0; i < limit + 1; ++i) open.push_back(stranger(server.port()));
    CHECK(is_closed(open[0]));
    CHECK_FALSE(is_closed(open[1], 20ms));
    CHECK(serves(server));
}

TEST_CASE("a connection without a complete greeting or request within the time limit is closed") {
    const auto map = std::make_shared<dptk::detail::SharedStoreMap>();
    dptk::detail::StoreSessions sessions(map, "", 10, [] {});
    const auto now = Deadline::Clock::now();
    dptk::detail::StoreSession silent(sessions, 2, now);
    CHECK(silent.deadline() == now + 10s);
    silent.receive("dptk", now + 9s);
    CHECK(silent.deadline() == now + 10s);
    silent.expire(now + 10s);
    CHECK(silent.ended());

    dptk::detail::StoreSession slow(sessions, 3, now);
    slow.receive(encode(dptk::detail::StoreHello{}), now);
    slow.sent(slow.to_send().size(), now);
    CHECK_FALSE(slow.deadline());
    slow.receive("\x05", now + 1s);
    CHECK(slow.deadline() == now + 1s + dptk::detail::transfer_time);
    slow.receive(std::string_view("\x00\x00", 2), now + 2s);
    CHECK(slow.deadline() == now + 1s + dptk::detail::transfer_time);
}

TEST_CASE("a large request of which little has arrived occupies little memory") {
    const auto map = std::make_shared<dptk::detail::SharedStoreMap>();
    dptk::detail::StoreSessions sessions(map, "", 10, [] {});
    const auto now = Deadline::Clock::now();
    dptk::detail::StoreSession session(sessions, 2, now);
    session.receive(encode(dptk::detail::StoreHello{}), now);
    session.sent(session.to_send().size(), now);
    session.receive(std::string("\x00\x00\x10\x00", 4) + "\x06", now);
    CHECK_FALSE(session.ended());
    CHECK(sessions.pending_bytes() < 1000);
}

TEST_CASE("a client that sends many requests and reads no replies is served one reply at a time") {
    const dptk::TcpStoreServer server;
    const auto client = connect(server);
    client->set("large", std::string(dptk::max_store_value_bytes, 'x'));
    const Socket slow = greeted(server.port());
    const std::string request = encode(dptk::detail::StoreRequest{StoreOperation::find, 0, {"large"}});
    for (int i = 0; i < 100; ++i) send(slow, request);
    for (int i = 0; i < 100; ++i) CHECK(client->add("n", 1) == i + 1);
    for (int i = 0; i < 100; ++i) {
        const std::string body =
            dptk::detail::receive_frame(slow, dptk::detail::max_reply_bytes, Deadline(60s));
        CHECK(dptk::detail::parse_reply(body)->text.size() == dptk::max_store_value_bytes);
    }
}

TEST_CASE("a client beyond the limit of connections is refused with the reason, until another ends") {
    const auto map = std::make_shared<dptk::detail::SharedStoreMap>();
    dptk::detail::StoreSessions sessions(map, "", 1, [] {});
    const auto now = Deadline::Clock::now();
    auto first = std::make_unique<dptk::detail::StoreSession>(sessions, 2, now);
    first->receive(encode(dptk::detail::StoreHello{}), now);
    CHECK(first->greeted());
    dptk::detail::StoreSession second(sessions, 3, now);
    second.receive(encode(dptk::detail::StoreHello{}), now);
    CHECK(second.ended());
    CHECK(contains(second.to_send(), "there are 1 connections; the limit is reached"));
    first.reset();
    dptk::detail::StoreSession third(sessions, 4, now);
    third.receive(encode(dptk::detail::StoreHello{}), now);
    CHECK(third.greeted());
}

TEST_CASE(
    "without free descriptors the server says so, keeps serving, and accepts connections when some are "
    "free") {
    const RecordedLog log;
    const dptk::TcpStoreServer server;
    const auto client = connect(server);
    Socket waiting = dptk::detail::open_socket(AF_INET);
    const auto resolved = dptk::detail::resolve("127.0.0.1", server.port(), AF_INET, 0);
    REQUIRE(resolved.first != nullptr);
    {
        const test::NoMoreFiles none;
        ::connect(waiting.number(), resolved.first->ai_addr, resolved.first->ai_addrlen);
        CHECK(dptk::detail::finish_connecting(waiting, Deadline(30s)) == 0);
        send(waiting, encode(dptk::detail::StoreHello{}));
        CHECK_FALSE(waiting.wait_for(POLLIN, Deadline(250ms)));
        CHECK(client->add("n", 1) == 1);
    }
    CHECK_NOTHROW(static_cast<void>(dptk::detail::receive_greeting(waiting, Deadline(30s))));
    const std::vector<std::string> lines = log.lines();
    REQUIRE(lines.size() == 1);
    CHECK(
        contains(lines[0], " cannot accept a connection: Too many open files: raise the limit (ulimit -n)"));
}

TEST_CASE("a lost client's last will is carried out, even if the client waits for a key") {
    const dptk::TcpStoreServer server;
    const auto observer = server.local();
    for (const bool waits : {false, true}) {
        Socket client = greeted(server.port());
        const std::string key = waits ? "lost waiting" : "lost";
        send(client, encode(dptk::detail::StoreRequest{StoreOperation::last_will, 0, {key, "rank 3"}}));
        static_cast<void>(dptk::detail::receive_frame(client, 1000, Deadline(30s)));
        if (waits) send(client, encode(dptk::detail::StoreRequest{StoreOperation::get, 60'000, {"never"}}));
        CHECK_FALSE(observer->find(key));
        client.close();
        CHECK(observer->get(key, 30s) == "rank 3");
    }
}

TEST_CASE("a last will does not overwrite a value, and a canceled last will is not carried out") {
    const dptk::TcpStoreServer server;
    const auto observer = server.local();
    observer->set("cause", "the first");
    Socket client = greeted(server.port());
    for (const auto& [key, value] : {std::pair("gone", "x"), std::pair("", ""), std::pair("cause", "late")}) {
        send(client, encode(dptk::detail::StoreRequest{StoreOperation::last_will, 0, {key, value}}));
        static_cast<void>(dptk::detail::receive_frame(client, 1000, Deadline(30s)));
    }
    Socket other = greeted(server.port());
    send(other, encode(dptk::detail::StoreRequest{StoreOperation::last_will, 0, {"signal", "x"}}));
    static_cast<void>(dptk::detail::receive_frame(other, 1000, Deadline(30s)));
    client.close();
    other.close();
    CHECK(observer->get("signal", 30s) == "x");
    std::this_thread::sleep_for(20ms);
    CHECK(observer->find("cause") == "the first");
    CHECK_FALSE(observer->find("gone"));
}

TEST_CASE("the last will of a client that was destroyed is not carried out") {
    const dptk::TcpStoreServer server;
    for (int i = 0; i < 50; ++i) connect(server)->set_last_will("will", "x");
    std::this_thread::sleep_for(50ms);
    CHECK_FALSE(server.local()->find("will"));
}

TEST_CASE("when the server ends, all waiting and all later calls throw at once") {
    auto server = std::make_unique<dptk::TcpStoreServer>();
    const auto port = std::to_string(server->port());
    const auto remote = connect(*server);
    const auto idle = connect(*server);
    idle->set_reply_timeout(10min);
    const auto local = server->local();
    std::string remote_error;
    std::string local_error;
    std::thread remote_waiter([&] {
        remote_error = message_of<dptk::PeerLostError>([&] { static_cast<void>(remote->get("never", 60s)); });
    });
    std::thread local_waiter([&] {
        local_error = message_of<dptk::PeerLostError>([&] { static_cast<void>(local->get("never", 60s)); });
    });
    std::this_thread::sleep_for(50ms);
    server.reset();
    remote_waiter.join();
    local_waiter.join();
    CHECK(contains(remote_error, "lost the store at 127.0.0.1:" + port + ": "));
    CHECK(contains(local_error, "port " + port + " on all interfaces has been closed"));
    CHECK(message_of<dptk::PeerLostError>([&] { remote->set("x", "y"); }) == remote_error);
    CHECK_THROWS_AS(static_cast<void>(remote->clone()), dptk::PeerLostError);
    CHECK_THROWS_AS(static_cast<void>(idle->clone()), dptk::PeerLostError);
    CHECK_THROWS_AS(local->set("x", "y"), dptk::PeerLostError);
}

TEST_CASE("a server that stops replying is considered gone after the reply timeout") {
    const Impostor impostor(
        [](const Socket& socket) { send(socket, encode(dptk::detail::StoreHelloReply{})); });
    const auto client = dptk::TcpStore::connect(impostor.address(), {.timeout = 30s});
    client->set_reply_timeout(50ms);
    const std::string error = message_of<dptk::PeerLostError>([&] { client->set("x", "y"); });
    CHECK(contains(error, "no reply for 50 ms"));
    CHECK(contains(error, impostor.address().text()));
    CHECK_THROWS_AS(client->set("x", "y"), dptk::PeerLostError);
}

TEST_CASE("a port in use is reported") {
    const dptk::TcpStoreServer server;
    const std::string port = std::to_string(server.port());
    const auto again = [&] { const dptk::TcpStoreServer second({.port = server.port()}); };
    CHECK(message_of<dptk::PortInUseError>(again) ==
          "port " + port + " on all interfaces is in use by another program");
    const auto on_loopback = [&] {
        const dptk::TcpStoreServer second({.port = server.port(), .bind_address = "127.0.0.1"});
    };
    CHECK(contains(message_of<dptk::PortInUseError>(on_loopback), "on 127.0.0.1 is in use"));
}

TEST_CASE("an address that does not belong to this host is reported") {
    const auto listen = [] { const dptk::TcpStoreServer server({.bind_address = "192.0.2.1"}); };
    CHECK(contains(message_of<dptk::BackendError>(listen), "cannot listen on port 0 on 192.0.2.1: "));
}

TEST_CASE("the port of a server that has ended can be used at once") {
    std::uint16_t port = 0;
    for (int i = 0; i < 3; ++i) {
        const dptk::TcpStoreServer server({.port = port});
        port = server.port();
        CHECK(serves(server));
    }
}

TEST_CASE("a client waits for a server that starts later") {
    const std::uint16_t port = unused_port();
    std::shared_ptr<dptk::TcpStore> client;
    std::thread early([&] { client = dptk::TcpStore::connect({"localhost", port}, {.timeout = 60s}); });
    std::this_thread::sleep_for(200ms);
    const dptk::TcpStoreServer server({.port = port});
    early.join();
    CHECK_NOTHROW(client->set("x", "y"));
}

TEST_CASE("if no server replies, the timeout error contains the address and the reason") {
    const std::uint16_t port = unused_port();
    CHECK(connect_error({"127.0.0.1", port}, 100ms) ==
          "no answer from 127.0.0.1:" + std::to_string(port) + " within 100 ms (Connection refused)");
    CHECK(contains(connect_error({"no-such-host.invalid", port}, 100ms),
                   "no answer from no-such-host.invalid:"));
}

TEST_CASE("a program that listens and is not a store is reported as such") {
    const Impostor talks([](const Socket& socket) { send(socket, "SSH-2.0-OpenSSH_9.2p1\r\n"); });
    const Impostor closes([](Socket& socket) { socket.close(); });
    const Impostor is_silent([](const Socket&) {});
    const Impostor lies([](const Socket& socket) { send(socket, "dptkstor\xff\xff\xff\xff"); });
    for (const Impostor* impostor : {&talks, &closes, &is_silent, &lies}) {
        const std::string what =
            "the program listening at " + impostor->address().text() + " is not a dptk store";
        const std::string error = connect_error(impostor->address(), 150ms);
        CAPTURE(error);
        CHECK(contains(error, what));
    }
}

TEST_CASE("a server that listens on IPv6 only serves clients over IPv6") {
    std::unique_ptr<dptk::TcpStoreServer> server;
    try {
        server = std::make_unique<dptk::TcpStoreServer>(dptk::TcpStoreServerOptions{.bind_address = "::1"});
    } catch (const dptk::BackendError& error) {
        MESSAGE("SKIPPED: this host has no IPv6: " << error.what());
        return;
    }
    const auto client = dptk::TcpStore::connect({"::1", server->port()}, {.timeout = 30s});
    client->set("x", "y");
    const auto get = [&] { static_cast<void>(client->get("missing", 0ms)); };
    CHECK(contains(message_of<dptk::TimeoutError>(get), "in the store at [::1]:"));
}

TEST_CASE("a hundred waiting clients all receive a reply") {
    const dptk::TcpStoreServer server;
    std::vector<Socket> clients;
    for (int i = 0; i < 100; ++i) {
        clients.push_back(greeted(server.port()));
        send(clients.back(), encode(dptk::detail::StoreRequest{StoreOperation::get, 60'000, {"start"}}));
    }
    server.local()->set("start", "now");
    for (const Socket& client : clients) {
        const std::string body = dptk::detail::receive_frame(client, 1000, Deadline(30s));
        CHECK(dptk::detail::parse_reply(body)->text == "now");
    }
}

namespace {

/// Resets a connection. The destructor of Socket would shut it down in order.
void reset_connection(const Socket& socket) {
    const linger at_once{1, 0};
    ::setsockopt(socket.number(), SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
    const dptk::detail::FileDescriptor other(::open("/dev/null", O_RDONLY | O_CLOEXEC));
    ::dup2(other.number(), socket.number());  // closes the connection
}

/// Forwards connections to a server, and can reset them, as a network device does.
class ResettingProxy {
  public:
    explicit ResettingProxy(std::uint16_t server) : server_(server) {
        listener_ = std::move(*dptk::detail::listen_on("127.0.0.1", 0));
        port_ = listener_.local_address().port;
        thread_ = std::jthread([this](const std::stop_token& stop) {
            while (!stop.stop_requested()) forward();
        });
    }

    [[nodiscard]] std::uint16_t port() const { return port_; }

    void reset() { wants_reset_ = true; }

  private:
    void forward() {
        std::vector<pollfd> waits{{listener_.number(), POLLIN, 0}};
        for (const auto& [client, server] : pairs_) {
            waits.push_back({client.number(), POLLIN, 0});
            waits.push_back({server.number(), POLLIN, 0});
        }
        ::poll(waits.data(), waits.size(), 5);
        if (wants_reset_.exchange(false)) return reset_all();
        for (std::size_t i = 0; i < pairs_.size(); ++i) {
            auto& [client, server] = pairs_[i];
            if (waits[2 * i + 1].revents != 0) pass(client, server);
            if (waits[2 * i + 2].revents != 0) pass(server, client);
        }
        if (waits[0].revents == 0) return;
        const int number = ::accept4(listener_.number(), nullptr, nullptr, SOCK_CLOEXEC);
        if (number < 0) return;
        dptk::detail::Socket client{dptk::detail::FileDescriptor(number)};
        auto connected = dptk::detail::connect_to("127.0.0.1", server_, dptk::detail::Deadline(1s));
        if (connected.socket.is_open()) pairs_.emplace_back(std::move(client), std::move(connected.socket));
    }

    static void pass(const dptk::detail::Socket& from, const dptk::detail::Socket& to) {
        char bytes[4096];
        const ssize_t count = ::recv(from.number(), bytes, sizeof bytes, MSG_DONTWAIT);
        if (count > 0) to.send_all({bytes, static_cast<std::size_t>(count)}, dptk::detail::Deadline(1s));
        if (count == 0) ::shutdown(to.number(), SHUT_WR);
    }

    void reset_all() {
        for (const auto& [client, server] : pairs_) {
            reset_connection(client);
            reset_connection(server);
        }
        pairs_.clear();
    }

    std::uint16_t server_;
    std::uint16_t port_ = 0;
    dptk::detail::Socket listener_;
    std::vector<std::pair<dptk::detail::Socket, dptk::detail::Socket>> pairs_;
    std::atomic<bool> wants_reset_ = false;
    std::jthread thread_;
};

}  // namespace

TEST_CASE("a client whose connection is reset reconnects, and no request is lost or carried out twice") {
    const TcpStoreServer server;
    const std::shared_ptr<dptk::Store> local = server.local();
    ResettingProxy proxy(server.port());
    const auto client = TcpStore::connect({"127.0.0.1", proxy.port()});
    client->set_last_will("will", "lost");
    for (int i = 1; i <= 40; ++i) {
        if (i % 4 == 0) proxy.reset();
        if (i % 3 == 0) std::this_thread::sleep_for(10ms);
        CHECK(client->add("sum", 1) == i);
        CHECK(client->compare_and_set("once/" + std::to_string(i), "", "set") == "set");
        CHECK(client->erase("once/" + std::to_string(i)));
    }
    std::thread later([&] {
        std::this_thread::sleep_for(100ms);
        proxy.reset();
        std::this_thread::sleep_for(200ms);
        local->set("late", "value");
    });
    CHECK(client->get("late", 10s) == "value");
    later.join();
    // A client without a last will may come back later.
    const auto idle = client->clone();
    idle->set("idle", "1");
    proxy.reset();
    for (int i = 0; i < 5; ++i) {
        std::this_thread::sleep_for(dptk::detail::reconnect_time / 4);
        CHECK(client->find("idle") == "1");
    }
    CHECK(idle->find("idle") == "1");
    proxy.reset();
    CHECK_THROWS_AS(static_cast<void>(client->get("nothing", -1ms)), dptk::TimeoutError);
    CHECK_FALSE(local->find("will"));
    CHECK(local->find("sum") == "40");
}

TEST_CASE("the last will of a client that does not reconnect is carried out, a little later") {
    const TcpStoreServer server;
    const std::shared_ptr<dptk::Store> local = server.local();
    const auto begin = std::chrono::steady_clock::now();
    {
        auto connected = dptk::detail::connect_to("127.0.0.1", server.port(), dptk::detail::Deadline(1s));
        REQUIRE(connected.socket.is_open());
        const dptk::detail::Deadline soon(5s);
        connected.socket.send_all(encode(dptk::detail::StoreHello{.client = 7}), soon);
        static_cast<void>(dptk::detail::receive_greeting(connected.socket, soon));
        connected.socket.send_all(
            encode(dptk::detail::StoreRequest{StoreOperation::last_will, 0, {"will", "lost"}}), soon);
        static_cast<void>(dptk::detail::receive_frame(connected.socket, 100, soon));
        reset_connection(connected.socket);
    }
    CHECK(local->get("will", 10s) == "lost");
    CHECK(std::chrono::steady_clock::now() - begin >= dptk::detail::reconnect_time);
}

TEST_CASE("the will of a process is carried out at its end, but not if only its connection is lost") {
    const TcpStoreServer server;
    const std::shared_ptr<dptk::Store> local = server.local();
    ResettingProxy proxy(server.port());
    const auto reset = TcpStore::connect({"127.0.0.1", proxy.port()});
    reset->set_will_of_process("reset", "x");
    proxy.reset();
    connect(server)->set_will_of_process("destroyed", "x");
    const pid_t process = fork();
    if (process == 0) {
        const auto client = connect(server);
        client->set_will_of_process("ended", "killed");
        kill(getpid(), SIGKILL);
    }
    waitpid(process, nullptr, 0);
    CHECK(local->get("ended", 10s) == "killed");
    std::this_thread::sleep_for(dptk::detail::reconnect_time + 500ms);
    CHECK_FALSE(local->find("reset"));
    CHECK_FALSE(local->find("destroyed"));
}

TEST_CASE("a client whose connection is reset, and whose server has ended, throws at once") {
    std::optional<TcpStoreServer> server(std::in_place);
    ResettingProxy proxy(server->port());
    const auto client = TcpStore::connect({"127.0.0.1", server->port()});
    const auto through_proxy = TcpStore::connect({"127.0.0.1", proxy.port()});
    server.reset();
    const auto begin = std::chrono::steady_clock::now();
    CHECK_THROWS_AS(static_cast<void>(client->find("x")), dptk::PeerLostError);
    CHECK(std::chrono::steady_clock::now() - begin < 1s);
    proxy.reset();
    CHECK_THROWS_AS(static_cast<void>(through_proxy->find("x")), dptk::PeerLostError);
}
