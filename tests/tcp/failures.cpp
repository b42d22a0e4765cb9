// What ends calls over TCP: ranks that leave, fail, are killed or cannot be reached; and strangers, which end
// nothing.
#include <dptk/comm/tcp/mesh.hpp>
#include <dptk/control/net/socket.hpp>
#include <dptk/control/store/tcp_store.hpp>
#include <dptk/control/store/tcp_store_server.hpp>
#include <dptk/core/detail/fnv1a.hpp>

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstdlib>
#include <ctime>
#include <functional>
#include <sstream>
#include <utility>

#include "support.hpp"
#include "support/no_more_files.hpp"

using namespace std::chrono_literals;

namespace {

using dptk::TcpTransport;
using test::contains;

/// Far more time than any test needs: detects a hang.
constexpr auto generous = 30s;

struct Call {
    const char* name;
    std::function<void(dptk::ProcessGroup&)> make;
};

/// Calls that cannot complete if rank 1 does not take part.
[[nodiscard]] std::vector<Call> calls_that_wait(std::size_t count) {
    const auto data = [count] { return std::vector<float>(count, 1.0F); };
    return {
        {"all_reduce",
         [=](dptk::ProcessGroup& on) {
             auto d = data();
             on.all_reduce(d);
         }},
        {"broadcast",
         [=](dptk::ProcessGroup& on) {
             auto d = data();
             on.broadcast(d, 1);
         }},
        {"barrier", [](dptk::ProcessGroup& on) { on.barrier(); }},
        {"a started message",
         [=](dptk::ProcessGroup& on) {
             auto d = data();
             on.recv_async(d, 1, 5).wait();
         }},
        {"recv",
         [=](dptk::ProcessGroup& on) {
             auto d = data();
             on.recv(d, 1, 5);
         }},
        {"probe", [](dptk::ProcessGroup& on) { static_cast<void>(on.probe(1, 5)); }},
    };
}

/// The port at which a rank of the job listens.
[[nodiscard]] std::uint16_t port_of(const test::Job& job, int rank) {
    std::uint16_t port = 0;
    std::istringstream(job.store->get("tcp/rank/" + std::to_string(rank), 10s)) >> port;
    return port;
}

[[nodiscard]] dptk::detail::Socket connect_to(std::uint16_t port) {
    return dptk::detail::connect_to("127.0.0.1", port, dptk::detail::Deadline(10s)).socket;
}

}  // namespace

TEST_CASE("a failure of a rank ends every call that waits, with its cause, and all later ones at once") {
    const test::Alarm alarm(120);
    for (const int ranks : {2, 4}) {
        for (const Call& call : calls_that_wait(100'000)) {
            CAPTURE(call.name);
            std::atomic<int> waiting = 0;
            std::atomic<int> ended = 0;
            test::on_groups({.size = ranks}, [&](dptk::ProcessGroup& group) {
                if (group.rank() == 1) {
                    while (waiting < ranks - 1) std::this_thread::sleep_for(1ms);
                    std::this_thread::sleep_for(20ms);
                    group.engine().control()->job_state()->fail("the reactor is on fire");
                    while (ended < ranks - 1) std::this_thread::sleep_for(1ms);
                    return;
                }
                ++waiting;
                CHECK(contains(test::message_of<dptk::PeerLostError>([&] { call.make(group); }),
                               "the reactor is on fire"));
                for (const Call& later : calls_that_wait(12)) {
                    CHECK(contains(test::message_of<dptk::PeerLostError>([&] { later.make(group); }),
                                   "the reactor is on fire"));
                }
                ++ended;
            });
        }
    }
}

TEST_CASE("the time limit of a call holds, and ends the job") {
    const test::Alarm alarm(60);
    std::atomic<bool> has_ended = false;
    test::on_groups({.size = 2}, [&](dptk::ProcessGroup& group) {
        std::vector<int> one(1);
        if (group.rank() == 0) {
            CHECK(contains(
                test::message_of<dptk::TimeoutError>([&] { group.recv(one, 1, 0, {.timeout = 300ms}); }),
                "recv(1 x i32, from rank 1)"));
            has_ended = true;
        } else {
            while (!has_ended) std::this_thread::sleep_for(1ms);
        }
    });
}

namespace {

/// Ways to wait for a message of rank 1 with tag 0.
[[nodiscard]] std::vector<std::pair<const char*, std::function<void(TcpTransport&)>>> waits_for_rank_1() {
    return {{"recv",
             [](TcpTransport& on) {
                 std::vector<int> one(1);
                 on.recv(test::buffer(one), 1, 0);
             }},
            {"recv_any",
             [](TcpTransport& on) {
                 std::vector<int> one(1);
                 static_cast<void>(on.recv_any(test::buffer(one), 0));
             }},
            {"probe",
             [](TcpTransport& on) {
                 while (!on.probe(1, 0)) std::this_thread::yield();
             }},
            {"probe of any rank",
             [](TcpTransport& on) {
                 while (!on.probe(dptk::any_rank, 0)) std::this_thread::yield();
             }},
            {"a started message", [](TcpTransport& on) {
                 std::vector<int> one(1);
                 const auto work = on.start_message({dptk::Verb::recv, test::buffer(one), 1, 0});
                 work->wait(generous);
                 if (const auto error = work->error()) std::rethrow_exception(error);
             }}};
}

}  // namespace

TEST_CASE("a rank that waits for one that has left learns it, whether they are connected or not") {
    const test::Alarm alarm(120);
    for (const auto& [name, wait] : waits_for_rank_1()) {
        for (const bool are_connected : {true, false}) {
            for (const bool is_late : {true, false}) {
                CAPTURE(name);
                CAPTURE(are_connected);
                CAPTURE(is_late);
                test::on_transports({.size = 2}, [&](TcpTransport& transport) {
                    std::vector<int> one{1};
                    if (are_connected && transport.rank() == 1) transport.send(test::buffer(one), 0, 0);
                    if (are_connected && transport.rank() == 0) transport.recv(test::buffer(one), 1, 0);
                    if (is_late && transport.rank() == 1) std::this_thread::sleep_for(200ms);
                    if (transport.rank() == 1) return;
                    if (!is_late) std::this_thread::sleep_for(100ms);
                    const std::string message =
                        test::message_of<dptk::PeerLostError>([&] { wait(transport); });
                    CHECK((contains(message, "rank 0: rank 1 has left the group") ||
                           contains(message, "rank 0: all other ranks have left the group") ||
                           contains(message, "has ended, or closed its groups")));
                });
            }
        }
    }
}

TEST_CASE("a thread that waits beside another learns that its rank has left, and the other goes on") {
    const test::Alarm alarm(60);
    const test::Job job{.size = 3};
    std::atomic<bool> is_known = false;
    test::on_transports(job, [&](TcpTransport& transport) {
        std::vector<int> one{transport.rank()};
        const std::unique_ptr<dptk::Transport> copy = transport.duplicate();
        if (transport.rank() == 2) return;
        if (transport.rank() == 1) {
            while (!is_known) std::this_thread::sleep_for(1ms);
            return transport.send(test::buffer(one), 0, 0);
        }
        std::jthread other([&] {
            std::this_thread::sleep_for(50ms);
            std::vector<int> none(1);
            CHECK(
                contains(test::message_of<dptk::PeerLostError>([&] { copy->recv(test::buffer(none), 2, 0); }),
                         "has ended, or closed its groups"));
            is_known = true;
        });
        transport.recv(test::buffer(one), 1, 0);
        CHECK(one[0] == 1);
    });
}

TEST_CASE("a receive outlasts attempts to connect to a rank that does not reply yet") {
    const test::Alarm alarm(60);
    const test::Job job{.size = 2, .timeout = 300ms};
    test::on_transports(job, [&](TcpTransport& transport) {
        std::vector<int> one{transport.rank()};
        if (transport.rank() == 1) {
            const auto deaf = dptk::detail::listen_on("127.0.0.1", 0);
            job.store->set("tcp/rank/1", dptk::detail::text(deaf->local_address().port, " 127.0.0.1"));
            std::this_thread::sleep_for(900ms);
            return transport.send(test::buffer(one), 0, 0);
        }
        std::this_thread::sleep_for(100ms);
        transport.recv(test::buffer(one), 1, 0);
        CHECK(one[0] == 1);
    });
}

TEST_CASE("a rank that leaves a group stays connected in others") {
    test::on_transports({.size = 2}, [](TcpTransport& transport) {
        std::vector<int> one{1};
        const std::unique_ptr<dptk::Transport> copy = transport.duplicate();
        if (transport.rank() == 1) {
            copy->leave();
            std::this_thread::sleep_for(50ms);
            return transport.send(test::buffer(one), 0, 0);
        }
        CHECK(contains(test::message_of<dptk::PeerLostError>([&] { copy->recv(test::buffer(one), 1, 0); }),
                       "rank 1 has left the group"));
        transport.recv(test::buffer(one), 1, 0);
    });
}

TEST_CASE("a message of another size is a mismatch, thrown on the receiving rank") {
    test::on_transports({.size = 2}, [](TcpTransport& transport) {
        for (const std::size_t count : {std::size_t{5}, std::size_t{500'000}}) {
            std::vector<float> data(count);
            if (transport.rank() == 1) {
                const auto sent = transport.start_message({dptk::Verb::send, test::buffer(data), 0, 2});
                static_cast<void>(sent->wait(300ms));
                continue;
            }
            std::vector<float> small(3);
            CHECK(test::message_of<dptk::MismatchError>([&] { transport.recv(test::buffer(small), 1, 2); }) ==
                  dptk::detail::text("rank 1 sends ", 4 * count, " bytes to rank 0, which expects 12 bytes"));
        }
    });
}

TEST_CASE("counts of all_to_all that do not fit name the sender and both sizes") {
    const test::Alarm alarm(60);
    test::on_groups({.size = 2}, [](dptk::ProcessGroup& group) {
        const std::vector<std::size_t> sent(2, 3);
        const std::vector<std::size_t> received{group.rank() == 1 ? 4U : 3U, 3};
        std::vector<int> out(6);
        std::vector<int> in(group.rank() == 1 ? 7U : 6U);
        const std::string message =
            test::message_of<dptk::Error>([&] { group.all_to_all(out, in, sent, received); });
        if (group.rank() == 1) CHECK(message == "rank 0 sends 12 bytes to rank 1, which expects 16 bytes");
        static_cast<void>(test::message_of<dptk::Error>([&] { group.barrier(); }));
    });
}

TEST_CASE("strangers that connect, send garbage, or say nothing cost a bounded amount and change nothing") {
    const test::Alarm alarm(60);
    const test::Job job{.size = 2};
    std::atomic<bool> stops = false;
    std::jthread strangers([&] {
        const std::uint16_t port = port_of(job, 0);
        std::vector<dptk::detail::Socket> held;
        for (int i = 0; !stops; ++i) {
            dptk::detail::Socket socket = connect_to(port);
            if (!socket.is_open()) continue;
            try {
                const std::string hello = "dptktcp1" + std::string(i % 3 == 0 ? 24 : 4, '\1');
                if (i % 2 == 0)
                    socket.send_all(i % 4 == 0 ? hello : std::string(5000, 'x'), dptk::detail::Deadline(1s));
            } catch (const dptk::Error&) {  // the rank has closed the connection
            }
            if (i % 5 != 0) held.push_back(std::move(socket));
            if (held.size() > 300) held.clear();
        }
    });
    test::on_transports(job, [&](TcpTransport& transport) {
        std::vector<int> one{transport.rank()};
        for (int i = 0; i < 200; ++i) {
            if (transport.rank() == 1) transport.send(test::buffer(one), 0, 0);
            if (transport.rank() == 0) transport.recv(test::buffer(one), 1, 0);
            if (i < 20) std::this_thread::sleep_for(10ms);
        }
        CHECK(one[0] == 1);
    });
    stops = true;
}

TEST_CASE("a process that speaks the protocol, but does not know the key, does not connect") {
    const test::Job job{.size = 2};
    std::atomic<bool> has_tried = false;
    test::on_transports(job, [&](TcpTransport& transport) {
        std::vector<int> one{transport.rank()};
        if (transport.rank() == 0) {
            while (!has_tried) static_cast<void>(transport.probe(1, 0));
            CHECK_FALSE(transport.probe(1, 0).has_value());
            return transport.recv(test::buffer(one), 1, 0);
        }
        const dptk::detail::Deadline deadline(10s);
        const dptk::detail::Socket socket = connect_to(port_of(job, 0));
        auto stranger = dptk::detail::TcpHandshake::connect({.key = {1, 2}, .rank = 1, .size = 2}, 0);
        socket.send_all(stranger.take_output(), deadline);
        std::string reply(stranger.wanted(), '\0');
        socket.receive_exactly(reply.data(), reply.size(), deadline);
        socket.send_all(std::string(16, 'p'), deadline);
        char byte = 0;
        CHECK_THROWS_AS(socket.receive_exactly(&byte, 1, deadline), dptk::PeerLostError);
        has_tried = true;
        transport.send(test::buffer(one), 0, 0);
    });
}

TEST_CASE("a rank that sends an invalid header, or data that nobody asked for, is named or ignored") {
    using dptk::detail::TcpHeader;
    using dptk::detail::TcpKind;
    const test::Alarm alarm(60);
    for (const bool is_valid : {true, false}) {
        const test::Job job{.size = 2};
        TcpTransport transport(job.options(0));
        const dptk::detail::Deadline deadline(10s);
        dptk::detail::Word128 key{};
        const std::string digits = job.store->get("tcp/key", 10s);
        for (std::size_t i = 0; i < 2; ++i) key[i] = std::stoull(digits.substr(16 * i, 16), nullptr, 16);
        std::jthread rank_1([&] {
            const dptk::detail::Socket socket = connect_to(port_of(job, 0));
            auto handshake = dptk::detail::TcpHandshake::connect({.key = key, .rank = 1, .size = 2}, 0);
            while (handshake.wanted() != 0) {
                socket.send_all(handshake.take_output(), deadline);
                std::string bytes(handshake.wanted(), '\0');
                socket.receive_exactly(bytes.data(), bytes.size(), deadline);
                handshake.receive(bytes);
            }
            REQUIRE(handshake.state() == dptk::detail::TcpHandshake::State::accepted);
            const TcpHeader headers[] = {{.bytes = 5, .id = 77, .kind = TcpKind::data},
                                         {.id = 78, .kind = TcpKind::grant},
                                         {.bytes = 1, .kind = TcpKind::credit}};
            for (const TcpHeader& header : headers) {
                socket.send_all({reinterpret_cast<const char*>(&header), sizeof header}, deadline);
                if (header.kind == TcpKind::data) socket.send_all("abcde", deadline);
            }
            const TcpHeader last{.group = dptk::detail::fnv1a("tcp"),
                                 .bytes = is_valid ? 4U : 1U << 30,
                                 .kind = TcpKind::message};
            socket.send_all({reinterpret_cast<const char*>(&last), sizeof last}, deadline);
            if (is_valid) socket.send_all({"\1\0\0\0", 4}, deadline);
        });
        std::vector<int> one(1);
        if (is_valid) {
            transport.recv(test::buffer(one), 1, 0);
            CHECK(one[0] == 1);
        } else {
            CHECK(test::message_of<dptk::PeerLostError>([&] { transport.recv(test::buffer(one), 1, 0); }) ==
                  "rank 0: lost the connection to rank 1: received an invalid header");
        }
        rank_1.join();
    }
}

TEST_CASE("a rank that nobody can connect to is named with its address") {
    const test::Alarm alarm(60);
    const test::Job job{.size = 2, .timeout = 2s};
    std::uint16_t port = 0;
    {
        const auto listener = dptk::detail::listen_on("127.0.0.1", 0);
        port = listener->local_address().port;
    }
    job.store->set("tcp/rank/1", dptk::detail::text(port, " 127.0.0.1"));
    TcpTransport transport(job.options(0));
    std::vector<int> one(1);
    CHECK(test::message_of<dptk::PeerLostError>([&] { transport.send(test::buffer(one), 1, 0); }) ==
          dptk::detail::text("rank 0: cannot connect to rank 1 at 127.0.0.1:", port,
                             ": Connection refused: it has ended, or closed its groups"));
}

#ifdef __clang__
#define DPTK_TEST_HAS_UBSAN __has_feature(undefined_behavior_sanitizer)
#else
#define DPTK_TEST_HAS_UBSAN 0
#endif
#if !DPTK_TEST_HAS_UBSAN  // Clang's checks of an object's type open a pipe
TEST_CASE("a rank that has no descriptor for a connection throws at once, and says what to do") {
    const test::Alarm alarm(30);
    const test::Job job{.size = 2};
    TcpTransport transport(job.options(0));
    const TcpTransport other(job.options(1));
    std::vector<int> one(1);
    const test::NoMoreFiles none;
    CHECK(test::message_of<dptk::BackendError>([&] { transport.send(test::buffer(one), 1, 0); }) ==
          "rank 0: cannot connect to rank 1: Too many open files: raise the limit (ulimit -n)");
}
#endif

namespace {

/// Makes accept4() fail with ENOBUFS in the calling thread, for the rest of its life. Returns whether the
/// system permits that.
[[nodiscard]] bool let_accept_fail() {
    std::array<sock_filter, 4> filter{{BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
                                       BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_accept4, 0, 1),
                                       BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOBUFS),
                                       BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)}};
    const sock_fprog program{filter.size(), filter.data()};
    return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
           ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

[[nodiscard]] std::chrono::nanoseconds processor_time_of_thread() {
    timespec time{};
    ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec);
}

}  // namespace

TEST_CASE("a rank for whose connections the system has no memory waits without spinning, and tries again") {
    const test::Alarm alarm(60);
    const test::Job job{.size = 3};
    TcpTransport transport(job.options(0));
    TcpTransport from(job.options(1));
    std::vector<int> data(1);
    dptk::Work work(transport.start_message(dptk::Message{dptk::Verb::recv, test::buffer(data), 1, 0}));
    const std::jthread sender([&] {
        std::this_thread::sleep_for(100ms);  // the thread below waits for the sockets by then
        std::vector<int> sent{5};
        TcpTransport(job.options(2)).send(test::buffer(sent), 0, 0);  // until rank 0 has accepted rank 2
        from.send(test::buffer(sent), 0, 0);
    });
    std::thread([&] {
        if (!let_accept_fail()) {
            MESSAGE("skipped: this system permits no seccomp filters");
            return;
        }
        CHECK(!work.wait(600ms));
        CHECK(processor_time_of_thread() < 300ms);
    }).join();
    work.wait();
    CHECK(data[0] == 5);
}

TEST_CASE("a rank that accepts connections and does not reply ends connecting at the timeout") {
    const test::Alarm alarm(60);
    const test::Job job{.size = 2, .timeout = 300ms};
    const auto listener = dptk::detail::listen_on("127.0.0.1", 0);
    job.store->set("tcp/rank/1", dptk::detail::text(listener->local_address().port, " 127.0.0.1"));
    TcpTransport transport(job.options(0));
    std::vector<int> one(1);
    const auto begin = std::chrono::steady_clock::now();
    const std::string message =
        test::message_of<dptk::TimeoutError>([&] { transport.send(test::buffer(one), 1, 0); });
    CHECK(contains(message, "cannot connect to rank 1 at 127.0.0.1:"));
    CHECK(contains(message, "tried for 300 ms; set DPTK_SOCKET_IFNAME"));
    CHECK(std::chrono::steady_clock::now() - begin < generous);
}

TEST_CASE("a rank that has several addresses is reached at the one that works") {
    const test::Alarm alarm(60);
    const test::Job job{.size = 2};
    test::on_transports(job, [&](TcpTransport& transport) {
        std::vector<int> one{transport.rank()};
        if (transport.rank() == 1) {
            job.store->set("tcp/rank/0",
                           dptk::detail::text(port_of(job, 0), " 127.0.0.2 127.0.0.3 127.0.0.1"));
            transport.send(test::buffer(one), 0, 0);
        } else {
            transport.recv(test::buffer(one), 1, 0);
            CHECK(one[0] == 1);
        }
    });
}

TEST_CASE("a rank that does not start is named") {
    const test::Job job{.size = 3, .timeout = 200ms};
    TcpTransport transport(job.options(0));
    std::vector<int> one(1);
    CHECK(test::message_of<dptk::TimeoutError>([&] { transport.send(test::buffer(one), 2, 0); }) ==
          "rank 0: connecting: rank 2 has not published its address within 200 ms");
    job.store->set("tcp/rank/1", "no number");
    CHECK(
        test::message_of<dptk::BackendError>([&] { transport.send(test::buffer(one), 1, 0); }) ==
        "rank 0: connecting: expected the port and the addresses of rank 1 in the store, got \"no number\"");
}

// Ranks in processes of their own: each runs this program again, with the one test that is skipped otherwise.

namespace {

/// A job with rank 0 in the process of this test, and the other ranks in child processes.
struct ProcessJob {
    dptk::TcpStoreServer server{{.port = 0, .bind_address = "127.0.0.1"}};
    std::vector<pid_t> children;

    ProcessJob(int size, const std::string& role) {
        for (int rank = 1; rank < size; ++rank) {
            ::setenv("DPTK_TEST_ROLE", role.c_str(), 1);
            ::setenv("DPTK_TEST_RANK", std::to_string(rank).c_str(), 1);
            ::setenv("DPTK_TEST_SIZE", std::to_string(size).c_str(), 1);
            ::setenv("DPTK_TEST_PORT", std::to_string(server.port()).c_str(), 1);
            const pid_t child = ::fork();
            if (child == 0) {
                ::prctl(PR_SET_PDEATHSIG, SIGKILL);
                ::execl("/proc/self/exe", "rank", "--minimal", "--no-skip",
                        "--test-case=a rank in a process of its own", nullptr);
                ::_exit(127);
            }
            children.push_back(child);
        }
    }
    ~ProcessJob() {
        for (const pid_t child : children) {
            ::kill(child, SIGKILL);
            ::waitpid(child, nullptr, 0);
        }
    }
    ProcessJob(const ProcessJob&) = delete;
    ProcessJob& operator=(const ProcessJob&) = delete;
};

[[nodiscard]] int integer_of(const char* variable) {
    const char* value = std::getenv(variable);
    return value == nullptr ? 0 : std::atoi(value);
}

[[nodiscard]] dptk::ProcessGroup connect(int rank, int size, const std::shared_ptr<dptk::Store>& store) {
    TcpTransport transport(
        {.rank = rank, .size = size, .store = store, .interface = "127.0.0.1", .timeout = 60s});
    return dptk::TcpCommunicator(std::move(transport),
                                 {.timeout = 60s, .heartbeat_timeout = 60s, .store = store});
}

/// Calls that transfer much data to and from rank 1.
[[nodiscard]] std::vector<Call> transfers() {
    constexpr std::size_t large = 4'000'000;  // more than the system's buffers hold
    const auto data = std::make_shared<std::vector<float>>(large, 1.0F);
    return {{"all_reduce", [data](dptk::ProcessGroup& on) { on.all_reduce(*data, dptk::ReduceOp::max); }},
            {"broadcast", [data](dptk::ProcessGroup& on) { on.broadcast(*data, 1); }},
            {"barrier", [](dptk::ProcessGroup& on) { on.barrier(); }},
            {"messages", [data](dptk::ProcessGroup& on) {
                 if (on.rank() == 1) {
                     on.send(*data, 0);
                 } else {
                     on.recv(*data, 1);
                 }
             }}};
}

}  // namespace

TEST_CASE("a rank in a process of its own" * doctest::skip()) {
    const test::Alarm alarm(120);
    const auto store = dptk::TcpStore::connect(
        {"127.0.0.1", static_cast<std::uint16_t>(integer_of("DPTK_TEST_PORT"))}, {.timeout = 60s});
    const int rank = integer_of("DPTK_TEST_RANK");
    dptk::ProcessGroup group = connect(rank, integer_of("DPTK_TEST_SIZE"), store);
    const Call call = transfers()[static_cast<std::size_t>(integer_of("DPTK_TEST_CALL"))];
    group.barrier();
    if (rank == 1) {
        std::thread([] {
            std::this_thread::sleep_for(std::chrono::milliseconds(integer_of("DPTK_TEST_DELAY")));
            ::kill(::getpid(), SIGKILL);
        }).detach();
    }
    static_cast<void>(test::message_of<dptk::PeerLostError>([&] {
        while (true) call.make(group);
    }));
}

TEST_CASE("a rank that is killed ends the others' calls, between and amid transfers, without the heartbeat") {
    for (int call = 0; call < static_cast<int>(transfers().size()); ++call) {
        const test::Alarm alarm(120);
        const Call transfer = transfers()[static_cast<std::size_t>(call)];
        CAPTURE(transfer.name);
        ::setenv("DPTK_TEST_CALL", std::to_string(call).c_str(), 1);
        ::setenv("DPTK_TEST_DELAY", std::to_string(10 + 15 * call).c_str(), 1);
        const ProcessJob job(3, "killed");
        dptk::ProcessGroup group = connect(0, 3, job.server.local());
        group.barrier();
        const auto begin = std::chrono::steady_clock::now();
        const std::string message = test::message_of<dptk::PeerLostError>([&] {
            while (true) transfer.make(group);
        });
        CHECK(contains(message, "rank 1"));
        CHECK(std::chrono::steady_clock::now() - begin < 10s);
    }
}
