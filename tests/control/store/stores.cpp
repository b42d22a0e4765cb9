// The behavior that all kinds of store have in common, tested with each kind.
#include <doctest/doctest.h>
#include <dptk/control/store/file_store.hpp>
#include <dptk/control/store/in_process_store.hpp>
#include <dptk/control/store/prefix_store.hpp>
#include <dptk/control/store/tcp_store.hpp>
#include <dptk/control/store/tcp_store_server.hpp>

#include <chrono>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "control/store/store_support.hpp"

using namespace std::chrono_literals;

namespace {

/// Two clients of one store, and an object that must outlive them.
struct Clients {
    std::shared_ptr<void> keeper;
    std::shared_ptr<dptk::Store> one;
    std::shared_ptr<dptk::Store> other;
};

struct Kind {
    std::string name;
    std::function<Clients()> make;
};

Clients in_process() {
    auto store = std::make_shared<dptk::InProcessStore>();
    return {nullptr, store, store->clone()};
}

Clients prefixed() {
    auto inner = std::make_shared<dptk::InProcessStore>();
    return {nullptr, std::make_shared<dptk::PrefixStore>(inner, "job"),
            std::make_shared<dptk::PrefixStore>(inner, "job")->clone()};
}

Clients file_creator_and_member() {
    auto directory = std::make_shared<TemporaryDirectory>();
    const std::string path = directory->path("store");
    auto creator = dptk::FileStore::create(path);
    return {directory, creator, dptk::FileStore::join(path, 10s)};
}

Clients file_members() {
    auto directory = std::make_shared<TemporaryDirectory>();
    const std::string path = directory->path("store");
    auto creator = dptk::FileStore::create(path);
    auto member = dptk::FileStore::join(path, 10s);
    auto copy = member->clone();
    return {std::make_shared<std::pair<std::shared_ptr<TemporaryDirectory>, std::shared_ptr<dptk::Store>>>(
                directory, creator),
            member, copy};
}

Clients tcp_local_and_remote() {
    auto server = std::make_shared<dptk::TcpStoreServer>();
    return {server, server->local(), connect(*server)};
}

Clients tcp_remote() {
    auto server = std::make_shared<dptk::TcpStoreServer>(dptk::TcpStoreServerOptions{.token = "secret"});
    auto client = connect(*server, "secret");
    return {server, client, client->clone()};
}

const std::vector<Kind>& kinds() {
    static const std::vector<Kind> all = {
        {"in process", in_process},
        {"prefixed", prefixed},
        {"file, creator and member", file_creator_and_member},
        {"file, two members", file_members},
        {"TCP, local and remote", tcp_local_and_remote},
        {"TCP, two remote clients", tcp_remote},
    };
    return all;
}

template <class Test>
void with_every_kind(Test test) {
    for (const Kind& kind : kinds()) {
        CAPTURE(kind.name);
        Clients clients = kind.make();
        test(*clients.one, *clients.other);
        test(*clients.other, *clients.one);
    }
}

const std::string all_bytes = [] {
    std::string bytes;
    for (int i = 0; i < 512; ++i) bytes += static_cast<char>(i);
    return bytes;
}();

}  // namespace

TEST_CASE("a value that one client sets is visible to another") {
    with_every_kind([](dptk::Store& one, dptk::Store& other) {
        one.set("key", "value");
        CHECK(other.find("key") == "value");
        CHECK(other.get("key", 0ms) == "value");
        other.set("key", "newer");
        CHECK(one.get("key", 1s) == "newer");
        CHECK_NOTHROW(one.wait(std::vector<std::string>{"key"}, 0ms));
        CHECK_NOTHROW(one.wait({}, 0ms));
        CHECK(one.erase("key"));
    });
}

TEST_CASE("keys and values may hold any bytes, up to the limits") {
    with_every_kind([](dptk::Store& one, dptk::Store& other) {
        const std::string long_key(1000, '\xff');
        const std::string long_value(dptk::max_store_value_bytes, '\0');
        one.set(all_bytes, all_bytes);
        one.set(long_key, long_value);
        one.set("empty", "");
        CHECK(other.find(all_bytes) == all_bytes);
        CHECK(other.find(long_key) == long_value);
        CHECK(other.get("empty", 0ms).empty());
        CHECK(other.compare_and_set(long_key, long_value, std::string(long_value.size(), 'x')) ==
              std::string(long_value.size(), 'x'));
    });
}

TEST_CASE("keys and values beyond the limits are errors, and the store stays usable") {
    with_every_kind([](dptk::Store& one, dptk::Store& other) {
        const std::string long_key(dptk::max_store_key_bytes + 1, 'k');
        const std::string long_value(dptk::max_store_value_bytes + 1, 'v');
        CHECK(message_of<dptk::ArgumentError>([&] { one.set("", "x"); }).find("is empty") !=
              std::string::npos);
        CHECK(message_of<dptk::ArgumentError>([&] { one.set(long_key, "x"); }).find("1025 bytes") !=
              std::string::npos);
        CHECK(message_of<dptk::ArgumentError>([&] { one.set("wide", long_value); }).find("\"wide\"") !=
              std::string::npos);
        CHECK_THROWS_AS(one.compare_and_set("wide", "", long_value), dptk::ArgumentError);
        CHECK_THROWS_AS(one.set_last_will("wide", long_value), dptk::ArgumentError);
        for (const std::string& key : {std::string(), long_key}) {
            CHECK_THROWS_AS(static_cast<void>(one.get(key, 0ms)), dptk::ArgumentError);
            CHECK_THROWS_AS(static_cast<void>(one.find(key)), dptk::ArgumentError);
            CHECK_THROWS_AS(one.add(key, 1), dptk::ArgumentError);
            CHECK_THROWS_AS(one.wait({&key, 1}, 0ms), dptk::ArgumentError);
            CHECK_THROWS_AS(one.erase(key), dptk::ArgumentError);
            CHECK_THROWS_AS(one.compare_and_set(key, "", ""), dptk::ArgumentError);
        }
        one.set("fine", "yes");
        CHECK(other.find("fine") == "yes");
    });
}

TEST_CASE("a full store rejects new keys, and keeps serving existing ones") {
    const std::string large(dptk::max_store_value_bytes, 'x');
    for (const Kind& kind : kinds()) {
        CAPTURE(kind.name);
        const Clients clients = kind.make();
        const auto fill = [&] {
            for (int i = 0; i < 100; ++i) clients.one->set("large" + std::to_string(i), large);
        };
        CHECK(message_of<dptk::ArgumentError>(fill).find("full") != std::string::npos);
        CHECK(clients.other->find("large0") == large);
        CHECK_FALSE(clients.other->find("large99"));
        CHECK_NOTHROW(clients.other->set("large0", "smaller"));
        CHECK_NOTHROW(clients.one->set("fits", "again"));
    }
}

TEST_CASE("waiting for a missing value times out with an error that names the key") {
    with_every_kind([](dptk::Store& one, dptk::Store&) {
        const auto get = [&] { static_cast<void>(one.get("missing", 20ms)); };
        CHECK(message_of<dptk::TimeoutError>(get).find("no value for key \"missing\" within 20 ms") == 0);
        one.set("there", "x");
        const std::vector<std::string> keys = {"first", "there", "second"};
        const std::string message = message_of<dptk::TimeoutError>([&] { one.wait(keys, 20ms); });
        CHECK(message.find("no value for keys \"first\", \"second\" within 20 ms") == 0);
        CHECK_FALSE(one.find("missing"));
    });
}

TEST_CASE("waiting for thousands of keys names some of the missing keys") {
    with_every_kind([](dptk::Store& one, dptk::Store& other) {
        std::vector<std::string> keys;
        for (int i = 0; i < 2500; ++i) keys.push_back("key" + std::to_string(i));
        for (int i = 0; i < 2500; i += 2) one.set(keys[static_cast<std::size_t>(i)], "x");
        const std::string message = message_of<dptk::TimeoutError>([&] { other.wait(keys, 10ms); });
        CHECK(message.find("\"key1\", \"key3\"") != std::string::npos);
        CHECK(message.find("and 1242 more") != std::string::npos);
        for (const std::string& key : keys) one.erase(key);
    });
}

TEST_CASE("a compare_and_set that sets nothing does not end a wait") {
    with_every_kind([](dptk::Store& one, dptk::Store& other) {
        std::string message;
        std::thread waiting([&] {
            const std::vector<std::string> keys = {"absent"};
            message = message_of<dptk::TimeoutError>([&] { one.wait(keys, 300ms); });
        });
        std::this_thread::sleep_for(100ms);
        static_cast<void>(other.compare_and_set("absent", "expected", "desired"));
        CHECK_FALSE(other.find("absent"));
        waiting.join();
        CHECK(message.find("absent") != std::string::npos);
    });
}

TEST_CASE("a blocked get and a blocked wait return when the values are set") {
    with_every_kind([](dptk::Store& one, dptk::Store& other) {
        std::string value;
        std::thread getter([&] {
            value = one.get("late", 60s);
            one.wait(std::vector<std::string>{"later", "late", "latest"}, 60s);
        });
        std::this_thread::sleep_for(30ms);
        other.set("late", "came");
        other.add("later", 1);
        std::this_thread::sleep_for(10ms);
        other.compare_and_set("latest", "", "x");
        getter.join();
        CHECK(value == "came");
        for (const char* key : {"late", "later", "latest"}) CHECK(other.erase(key));
    });
}

TEST_CASE("add counts from 0, and errors leave the number unchanged") {
    with_every_kind([](dptk::Store& one, dptk::Store& other) {
        CHECK(one.add("n", 5) == 5);
        CHECK(other.add("n", -7) == -2);
        CHECK(one.find("n") == "-2");
        CHECK(other.add("n", std::numeric_limits<std::int64_t>::max()) ==
              std::numeric_limits<std::int64_t>::max() - 2);
        CHECK_THROWS_AS(one.add("n", 3), dptk::ArgumentError);
        CHECK(one.add("n", 2) == std::numeric_limits<std::int64_t>::max());
        one.set("n", "three");
        CHECK(message_of<dptk::ArgumentError>([&] { other.add("n", 3); }).find("\"n\"") != std::string::npos);
        one.set("n", "");
        CHECK_THROWS_AS(other.add("n", 3), dptk::ArgumentError);
        one.erase("n");
    });
}

TEST_CASE("compare_and_set replaces only the expected value, and returns the current one") {
    with_every_kind([](dptk::Store& one, dptk::Store& other) {
        CHECK(one.compare_and_set("c", "expected", "x").empty());
        CHECK_FALSE(other.find("c"));
        CHECK(one.compare_and_set("c", "", "first") == "first");
        CHECK(other.compare_and_set("c", "", "second") == "first");
        CHECK(other.compare_and_set("c", "first", "second") == "second");
        CHECK(one.find("c") == "second");
        CHECK(one.compare_and_set("c", "second", "").empty());
        CHECK(one.find("c") == "");
        CHECK(other.compare_and_set("c", "", "again") == "again");
        one.erase("c");
    });
}

TEST_CASE("erase returns whether there was a value") {
    with_every_kind([](dptk::Store& one, dptk::Store& other) {
        CHECK_FALSE(one.erase("gone"));
        one.set("gone", "x");
        CHECK(other.erase("gone"));
        CHECK_FALSE(one.find("gone"));
        CHECK_FALSE(one.erase("gone"));
    });
}

TEST_CASE("add and compare_and_set are atomic between threads and clients") {
    with_every_kind([](dptk::Store& one, dptk::Store& other) {
        constexpr int rounds = 50;
        std::vector<std::shared_ptr<dptk::Store>> own = {one.clone(), other.clone()};
        std::vector<dptk::Store*> users = {&one, &one, &other, own[0].get(), own[1].get()};
        std::vector<std::set<std::int64_t>> seen(users.size());
        std::vector<int> wins(users.size());
        std::vector<std::thread> threads;
        for (std::size_t i = 0; i < users.size(); ++i) {
            threads.emplace_back([&, i] {
                for (int round = 0; round < rounds; ++round) {
                    seen[i].insert(users[i]->add("sum", 1));
                    const std::string me = std::to_string(i);
                    if (users[i]->compare_and_set("round" + std::to_string(round), "", me) == me) ++wins[i];
                }
            });
        }
        for (std::thread& thread : threads) thread.join();
        std::set<std::int64_t> sums;
        int won = 0;
        for (std::size_t i = 0; i < users.size(); ++i) {
            sums.insert(seen[i].begin(), seen[i].end());
            won += wins[i];
        }
        CHECK(sums.size() == users.size() * rounds);
        CHECK(one.find("sum") == std::to_string(users.size() * rounds));
        CHECK(won == rounds);
        one.erase("sum");
        for (int round = 0; round < rounds; ++round) one.erase("round" + std::to_string(round));
    });
}

TEST_CASE("a last will is accepted, and not carried out while its client exists") {
    with_every_kind([](dptk::Store& one, dptk::Store& other) {
        one.set_last_will("will", "x");
        one.set_last_will("", "");
        CHECK_FALSE(other.find("will"));
    });
}

TEST_CASE("the longest timeout does not overflow") {
    with_every_kind([](dptk::Store& one, dptk::Store&) {
        one.set("there", "x");
        CHECK(one.get("there", std::chrono::milliseconds::max()) == "x");
        CHECK_NOTHROW(one.wait(std::vector<std::string>{"there"}, std::chrono::milliseconds::max()));
        CHECK_THROWS_AS(static_cast<void>(one.get("missing", std::chrono::milliseconds::min())),
                        dptk::TimeoutError);
    });
}

TEST_CASE("a prefix separates the keys of two users of one store") {
    auto inner = std::make_shared<dptk::InProcessStore>();
    dptk::PrefixStore left(inner, "left");
    dptk::PrefixStore right(inner, "right");
    left.set("key", "l");
    right.set("key", "r");
    CHECK(left.find("key") == "l");
    CHECK(inner->find("right/key") == "r");
    const std::string key(dptk::max_store_key_bytes - 4, 'k');
    const std::string message = message_of<dptk::ArgumentError>([&] { left.set(key, "x"); });
    CHECK(message.find("with the prefix \"left\"") != std::string::npos);
    CHECK_THROWS_AS(dptk::PrefixStore(nullptr, "x"), dptk::ArgumentError);
}
