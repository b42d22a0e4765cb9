// Cancellation of Gloo's waits if ranks are missing, leave early, are stopped or killed.
#include <dptk/control/health/program_end.hpp>
#include <dptk/control/store/tcp_store.hpp>
#include <dptk/control/store/tcp_store_server.hpp>

#include <sys/prctl.h>
#include <sys/wait.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <utility>

#include "support.hpp"

namespace {

using namespace std::chrono_literals;
using dptk::GlooTransport;
using dptk::ReduceOp;
using test::contains;

/// Far more time than any test needs: detects a hang.
constexpr auto generous = 30s;

struct Call {
    const char* name;
    std::function<void(dptk::Transport&)> make;
};

/// Calls that cannot complete if rank 1 does not take part.
[[nodiscard]] std::vector<Call> calls_that_wait(std::size_t count) {
    const auto data = [count] { return std::vector<float>(count, 1.0F); };
    return {
        {"all_reduce",
         [=](dptk::Transport& on) {
             auto d = data();
             test::all_reduce(on, test::buffer(d), ReduceOp::sum);
         }},
        {"broadcast",
         [=](dptk::Transport& on) {
             auto d = data();
             test::broadcast(on, test::buffer(d), 1);
         }},
        {"all_gather",
         [=](dptk::Transport& on) {
             auto d = data();
             std::vector<float> all(count * static_cast<std::size_t>(on.size()));
             test::all_gather(on, test::buffer(d), test::buffer(all));
         }},
        {"all_reduce, over messages",
         [=](dptk::Transport& on) {
             auto d = data();
             on.run({.verb = dptk::Verb::all_reduce,
                     .input = test::buffer(d),
                     .output = test::buffer(d),
                     .algorithm = dptk::AllReduceAlgorithm::tree});
         }},
        {"gather",
         [=](dptk::Transport& on) {
             auto d = data();
             on.run({.verb = dptk::Verb::gather, .input = test::buffer(d), .root = 1});
         }},
        {"scatter",
         [=](dptk::Transport& on) {
             auto d = data();
             on.run({.verb = dptk::Verb::scatter, .output = test::buffer(d), .root = 1});
         }},
        {"all_to_all",
         [=](dptk::Transport& on) {
             auto d = data();
             auto other = data();
             const std::size_t all = count / 12 * 12;
             test::all_to_all(on, test::buffer(d).slice(0, all), test::buffer(other).slice(0, all));
         }},
        {"barrier", [](dptk::Transport& on) { test::barrier(on); }},
        {"a started message",
         [=](dptk::Transport& on) {
             auto d = data();
             dptk::Work(on.start_message(dptk::Message{dptk::Verb::recv, test::buffer(d), 1, 5})).wait();
         }},
        {"send",
         [=](dptk::Transport& on) {
             auto d = data();
             on.send(test::buffer(d), 1, 5);
         }},
        {"recv",
         [=](dptk::Transport& on) {
             auto d = data();
             on.recv(test::buffer(d), 1, 5);
         }},
        {"duplicate", [](dptk::Transport& on) { static_cast<void>(on.duplicate()); }},
        {"subgroup",
         [](dptk::Transport& on) {
             static_cast<void>(
                 on.subgroup(std::vector{on.rank(), 1}, dptk::detail::text("with rank ", on.rank())));
         }},
    };
}

}  // namespace

TEST_CASE("a failure of the job ends every call that waits, with its cause, and all later ones at once") {
    for (const int ranks : {2, 4}) {
        for (const Call& call : calls_that_wait(100'000)) {
            CAPTURE(call.name);
            const test::Job job{.size = ranks};
            std::atomic<int> waiting = 0;
            std::vector<std::jthread> threads;
            const auto begin = std::chrono::steady_clock::now();
            for (int rank = 0; rank < ranks; ++rank) {
                threads.emplace_back([&, rank] {
                    const std::unique_ptr<dptk::Transport> owner = job.connect(rank);
                    dptk::Transport& transport = *owner;
                    if (rank == 1) {
                        while (waiting < ranks - 1) std::this_thread::sleep_for(1ms);
                        std::this_thread::sleep_for(20ms);
                        job.job_state->fail("the reactor is on fire");
                        return;
                    }
                    ++waiting;
                    CHECK(contains(test::message_of<dptk::PeerLostError>([&] { call.make(transport); }),
                                   "the reactor is on fire"));
                    for (const Call& later : calls_that_wait(12)) {
                        CHECK(contains(test::message_of<dptk::PeerLostError>([&] { later.make(transport); }),
                                       "the reactor is on fire"));
                    }
                    transport.leave();
                });
            }
            threads.clear();
            CHECK(std::chrono::steady_clock::now() - begin < generous);
        }
    }
}

TEST_CASE("missing ranks are named at the timeout") {
    test::Job job{.size = 4, .timeout = 300ms};
    std::vector<std::jthread> threads;
    for (const int rank : {0, 2}) {
        threads.emplace_back([&, rank] {
            const std::string message =
                test::message_of<dptk::TimeoutError>([&] { static_cast<void>(job.connect(rank)); });
            CHECK(contains(message, "timed out after 300 ms, missing ranks 1, 3 of 4"));
            CHECK(contains(message, dptk::detail::text("rank ", rank)));
        });
    }
}

TEST_CASE("a failure of the job ends the wait for missing ranks") {
    const test::Job job{.size = 2};
    std::jthread failing([&] {
        std::this_thread::sleep_for(50ms);
        job.job_state->fail("rank 1 has not even started");
    });
    CHECK(contains(test::message_of<dptk::PeerLostError>([&] { static_cast<void>(job.connect(0)); }),
                   "rank 1 has not even started"));
}

TEST_CASE("a rank that publishes its address, and then does not answer, ends connecting") {
    // Rank 1 listens, but never accepts a connection, as if it were stopped.
    for (const bool job_fails : {false, true}) {
        test::Job job{.size = 2, .timeout = job_fails ? 60s : 500ms};
        const auto device = dptk::detail::make_gloo_device("127.0.0.1");
        const auto pairs = device->createContext(1, 2);
        pairs->setTimeout(1h);
        const std::vector<char> bytes = pairs->createPair(0)->address().bytes();
        const std::string endpoint(bytes.begin(), bytes.end());
        // The endpoint for rank 0, and one for rank 1 itself, which is not used.
        job.store->set("gloo/address/1", endpoint + endpoint);
        std::jthread failing([&] {
            std::this_thread::sleep_for(300ms);
            if (job_fails) job.job_state->fail("rank 1 stands still");
        });
        const auto begin = std::chrono::steady_clock::now();
        std::string message;
        try {
            static_cast<void>(job.connect(0));
        } catch (const dptk::Error& error) {
            message = error.what();
        }
        CHECK(!message.empty());
        if (job_fails) CHECK(contains(message, "rank 1 stands still"));
        CHECK(std::chrono::steady_clock::now() - begin < generous);
    }
}

TEST_CASE("a rank that nobody can connect to is named with its address") {
    test::Job job{.size = 2, .timeout = 2s};
    std::string endpoint;
    {
        const auto device = dptk::detail::make_gloo_device("127.0.0.1");
        const auto pairs = device->createContext(1, 2);
        const std::vector<char> bytes = pairs->createPair(0)->address().bytes();
        endpoint.assign(bytes.begin(), bytes.end());
    }
    job.store->set("gloo/address/1", endpoint + endpoint);
    std::string message;
    try {
        static_cast<void>(job.connect(0));
    } catch (const dptk::Error& error) {
        message = error.what();
    }
    CHECK(contains(message, "cannot connect to rank 1 at 127.0.0.1:"));
    CHECK(contains(message, "if this rank is on another host, set DPTK_SOCKET_IFNAME"));
}

TEST_CASE("a message of another size is a mismatch, thrown on the receiving rank") {
    const test::Job job{.size = 2};
    std::jthread sender([&] {
        const std::unique_ptr<dptk::Transport> owner = job.connect(1);
        dptk::Transport& transport = *owner;
        std::vector<float> data(5);
        CHECK(
            contains(test::message_of<dptk::PeerLostError>([&] { transport.send(test::buffer(data), 0, 2); }),
                     "another size"));
    });
    const std::unique_ptr<dptk::Transport> owner = job.connect(0);
    dptk::Transport& transport = *owner;
    std::vector<float> data(3);
    CHECK(test::message_of<dptk::MismatchError>([&] { transport.recv(test::buffer(data), 1, 2); }) ==
          "rank 1 sends 20 bytes to rank 0, which expects 12 bytes");
    job.job_state->fail("another size");
}

TEST_CASE("a rank that has left does not disturb ranks that continue without it, or are late") {
    const test::Job job{.size = 3};
    std::vector<std::jthread> threads;
    for (int rank = 0; rank < 3; ++rank) {
        threads.emplace_back([&, rank] {
            const std::unique_ptr<dptk::Transport> owner = job.connect(rank);
            dptk::Transport& transport = *owner;
            if (rank == 1) std::this_thread::sleep_for(300ms);
            std::vector<float> data(1'000'000, static_cast<float>(rank));
            test::broadcast(transport, test::buffer(data), 2);
            CHECK(data[999'999] == 2.0F);
            if (rank == 2) return transport.leave();
            if (rank == 0) transport.send(test::buffer(data), 1, 5);
            if (rank == 1) transport.recv(test::buffer(data), 0, 5);
            transport.leave();
        });
    }
}

TEST_CASE("what was sent before a rank left arrives") {
    for (int round = 0; round < 20; ++round) {
        test::on_ranks({.size = 3}, [&](dptk::Transport& transport) {
            std::vector<std::uint8_t> data(3'000'000, static_cast<std::uint8_t>(transport.rank()));
            test::broadcast(transport, test::buffer(data), 0);
            CHECK(std::count(data.begin(), data.end(), 0) == 3'000'000);
        });
    }
}

TEST_CASE("transports that are created and destroyed leak no descriptors and no threads") {
    const auto create_and_destroy = [] {
        test::on_ranks({.size = 2}, [](dptk::Transport& transport) {
            const std::unique_ptr<dptk::Transport> copy = transport.duplicate();
            test::barrier(*copy);
            copy->leave();
        });
    };
    create_and_destroy();
    const std::size_t descriptors = test::entries_of("/proc/self/fd");
    const std::size_t threads = test::entries_of("/proc/self/task");
    for (int i = 0; i < 50; ++i) create_and_destroy();
    // Connections are closed shortly after their groups.
    const auto begin = std::chrono::steady_clock::now();
    const auto nothing_left = [&] {
        return test::entries_of("/proc/self/fd") <= descriptors &&
               test::entries_of("/proc/self/task") <= threads;
    };
    while (!nothing_left() && std::chrono::steady_clock::now() - begin < generous) {
        std::this_thread::sleep_for(50ms);
    }
    CHECK(nothing_left());
}

TEST_CASE("the end of a program waits until groups that were left have been destroyed") {
    static std::atomic<int> destroyed = 0;
    struct SlowToDestroy {
        ~SlowToDestroy() {
            std::this_thread::sleep_for(500ms);
            ++destroyed;
        }
    };
    const test::Job job{.size = 2};
    const auto create_and_leave = [&job](int rank) {
        const auto control = dptk::detail::ControlPlane::make(
            {.rank = rank,
             .size = job.size,
             .last_resort = [part = std::make_shared<SlowToDestroy>()](const std::string&) {}},
            job.job_state);
        dptk::detail::GlooFactory::make(job.options(rank), control)->leave();
    };
    std::thread other([&] { create_and_leave(1); });
    create_and_leave(0);
    other.join();
    CHECK(dptk::detail::ProgramEnd::get().wait().well);
    CHECK(destroyed.load() == job.size);
}

TEST_CASE("the keys of a mesh do not stay in the store") {
    const test::Job job{.size = 2};
    test::on_ranks(job, [](dptk::Transport& transport) {
        const std::unique_ptr<dptk::Transport> copy = transport.duplicate();
        copy->leave();
    });
    static_cast<void>(dptk::detail::ProgramEnd::get().wait());
    for (const std::string name : {"gloo", "gloo.0"}) {
        for (const char* phase : {"/address/", "/connected/"}) {
            for (const char* rank : {"0", "1"}) CHECK(!job.store->find(name + phase + rank));
        }
        CHECK(!job.store->find(name + "/closing"));
        CHECK(!job.store->find(name + "/closed"));
    }
}

TEST_CASE("writing to a connection that has gone raises no signal, then or later") {
    int ends[2];
    REQUIRE(::pipe(ends) == 0);
    ::close(ends[0]);
    {
        const dptk::detail::BrokenPipeIgnored ignored;
        CHECK(::write(ends[1], "x", 1) == -1);
    }
    sigset_t blocked;
    ::pthread_sigmask(SIG_SETMASK, nullptr, &blocked);
    CHECK(::sigismember(&blocked, SIGPIPE) == 0);
    ::close(ends[1]);
}

// Ranks in processes of their own: each runs this program again, with the one test that is skipped
// otherwise.

namespace {

/// A job with rank 0 in the process of this test, and the other ranks in child processes.
struct ProcessJob {
    dptk::TcpStoreServer server{{.port = 0, .bind_address = "127.0.0.1"}};
    int size;
    std::vector<pid_t> children;

    ProcessJob(int size_, const std::string& role) : size(size_) {
        for (int rank = 1; rank < size; ++rank) children.push_back(start(rank, role));
    }
    ~ProcessJob() {
        for (const pid_t child : children) {
            ::kill(child, SIGKILL);
            ::waitpid(child, nullptr, 0);
        }
    }
    ProcessJob(const ProcessJob&) = delete;
    ProcessJob& operator=(const ProcessJob&) = delete;

    [[nodiscard]] pid_t start(int rank, const std::string& role) const {
        const std::vector<std::pair<std::string, std::string>> environment = {
            {"DPTK_TEST_ROLE", role},
            {"DPTK_TEST_RANK", std::to_string(rank)},
            {"DPTK_TEST_SIZE", std::to_string(size)},
            {"DPTK_TEST_PORT", std::to_string(server.port())}};
        for (const auto& [name, value] : environment) ::setenv(name.c_str(), value.c_str(), 1);
        const pid_t child = ::fork();
        if (child == 0) {
            ::prctl(PR_SET_PDEATHSIG, SIGKILL);
            ::execl("/proc/self/exe", "rank", "--minimal", "--no-skip",
                    "--test-case=a rank in a process of its own", nullptr);
            ::_exit(127);
        }
        return child;
    }
};

[[nodiscard]] int integer_of(const char* variable) {
    const char* value = std::getenv(variable);
    return value == nullptr ? 0 : std::atoi(value);
}

/// Too large for the kernel's socket buffers.
constexpr std::size_t large = 4'000'000;

/// Collective calls that transfer much data to and from rank 1.
[[nodiscard]] std::vector<Call> transfers() {
    const auto memory = std::make_shared<std::vector<float>>(4 * large, 1.0F);
    const auto with_data = [memory](auto&& make) {
        return [=](dptk::Transport& on) { make(on, test::buffer(*memory).slice(0, large)); };
    };
    return {
        {"all_reduce", with_data([](dptk::Transport& on, const dptk::Buffer& data) {
             test::all_reduce(on, data, ReduceOp::max);
         })},
        {"broadcast from rank 0",
         with_data([](dptk::Transport& on, const dptk::Buffer& data) { test::broadcast(on, data, 0); })},
        {"broadcast from rank 1",
         with_data([](dptk::Transport& on, const dptk::Buffer& data) { test::broadcast(on, data, 1); })},
        {"all_gather",
         [memory](dptk::Transport& on) {
             const dptk::Buffer all = test::buffer(*memory).slice(0, 3 * large);
             test::all_gather(on, test::buffer(*memory).slice(3 * large, large), all);
         }},
        {"all_to_all",
         [memory](dptk::Transport& on) {
             const dptk::Buffer half = test::buffer(*memory).slice(0, 3 * (large / 2));
             test::all_to_all(on, half, test::buffer(*memory).slice(half.count, half.count));
         }},
        {"messages to rank 1", with_data([](dptk::Transport& on, const dptk::Buffer& data) {
             if (on.rank() == 0) on.send(data, 1, 0);
             if (on.rank() == 1) on.recv(data, 0, 0);
             if (on.rank() > 1) on.recv(data, 1, 0);
         })},
        {"messages from rank 1", with_data([](dptk::Transport& on, const dptk::Buffer& data) {
             if (on.rank() == 0) on.recv(data, 1, 0);
             if (on.rank() == 1) on.send(data, 0, 0);
             if (on.rank() > 1) on.recv(data, 1, 0);
         })},
    };
}

}  // namespace

TEST_CASE("a rank in a process of its own" * doctest::skip()) {
    const test::Alarm alarm(120);
    const std::string role = std::getenv("DPTK_TEST_ROLE");
    const auto store = dptk::TcpStore::connect(
        {"127.0.0.1", static_cast<std::uint16_t>(integer_of("DPTK_TEST_PORT"))}, {.timeout = 60s});
    const int rank = integer_of("DPTK_TEST_RANK");
    const std::unique_ptr<dptk::Transport> owner =
        test::Job{.size = integer_of("DPTK_TEST_SIZE"), .store = store}.connect(rank);
    dptk::Transport& transport = *owner;
    const Call call = transfers()[static_cast<std::size_t>(integer_of("DPTK_TEST_CALL"))];
    test::barrier(transport);
    const int signal = role.starts_with("killed") ? SIGKILL : SIGSTOP;
    if (rank == 1 && role.ends_with("idle")) ::raise(signal);
    if (rank == 1) {
        std::thread([&] {
            std::this_thread::sleep_for(std::chrono::milliseconds(integer_of("DPTK_TEST_DELAY")));
            ::kill(::getpid(), signal);
        }).detach();
    }
    static_cast<void>(test::message_of<dptk::PeerLostError>([&] {
        while (true) call.make(transport);
    }));
}

namespace {

enum class Knows { nobody, the_control_plane };

/// Returns the error of rank 0's call if rank 1 ends as its role says. With Knows::the_control_plane, the
/// job fails a second later.
[[nodiscard]] std::string end_of(const std::string& role, int call, int delay, Knows knows) {
    const test::Alarm alarm(120);
    ::setenv("DPTK_TEST_CALL", std::to_string(call).c_str(), 1);
    ::setenv("DPTK_TEST_DELAY", std::to_string(delay).c_str(), 1);
    const ProcessJob processes(3, role);
    const test::Job job{.size = 3, .store = processes.server.local()};
    const std::unique_ptr<dptk::Transport> owner = job.connect(0);
    dptk::Transport& transport = *owner;
    const Call transfer = transfers()[static_cast<std::size_t>(call)];
    test::barrier(transport);
    std::jthread failing([&] {
        if (knows == Knows::nobody) return;
        std::this_thread::sleep_for(1s);
        job.job_state->fail("rank 1 is lost");
    });
    const std::string message = test::message_of<dptk::PeerLostError>([&] {
        while (true) transfer.make(transport);
    });
    transport.leave();
    return message;
}

}  // namespace

TEST_CASE("a rank that is killed ends the others' calls, between and amid transfers") {
    for (int call = 0; call < static_cast<int>(transfers().size()); ++call) {
        CAPTURE(transfers()[static_cast<std::size_t>(call)].name);
        CHECK(contains(end_of("killed in a transfer", call, 10 + 15 * call, Knows::nobody), "rank 0: "));
    }
    CHECK(contains(end_of("killed while idle", 0, 0, Knows::nobody), "rank 0: "));
    CHECK(contains(end_of("killed in a transfer", 0, 50, Knows::the_control_plane), "rank 1 is lost"));
}

TEST_CASE("a rank that stands still ends the others' calls as soon as the job is known to have failed") {
    for (int call = 0; call < static_cast<int>(transfers().size()); ++call) {
        CAPTURE(transfers()[static_cast<std::size_t>(call)].name);
        CHECK(contains(end_of("stopped in a transfer", call, 10 + 15 * call, Knows::the_control_plane),
                       "rank 1 is lost"));
    }
    CHECK(contains(end_of("stopped while idle", 0, 0, Knows::the_control_plane), "rank 1 is lost"));
}
