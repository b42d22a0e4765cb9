// Fuzz target of the store protocol: passes arbitrary bytes, in arbitrary pieces and from several
// connections at once, to the server side of a store, without sockets, and to the other parsers of
// untrusted data.
//
// With libFuzzer:
//     clang++ -std=c++20 -g -O1 -fsanitize=fuzzer,address,undefined -I include tests/fuzz/store_protocol.cpp
//     ./a.out corpus tests/fuzz/corpus
// With -DDPTK_FUZZ_REPLAY it is a plain program that replays files and generated seeds.
#include <dptk/control/store/detail/store_file.hpp>
#include <dptk/control/store/detail/store_session.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace {

using dptk::detail::Deadline;
using dptk::detail::SharedStoreMap;
using dptk::detail::StoreOperation;
using dptk::detail::StoreRequest;
using dptk::detail::StoreSession;
using dptk::detail::StoreSessions;

void require(bool holds, const char* what) {
    if (holds) return;
    std::fprintf(stderr, "broken: %s\n", what);
    std::abort();
}

/// Three connections of one server. The input is a list of steps. The first byte of a step selects the
/// connection and the action (bytes arrive, replies are sent, time passes, the connection is lost), the
/// second byte is the amount, and then follow the bytes that arrive.
class Server {
  public:
    Server() : map_(std::make_shared<SharedStoreMap>()), sessions_(map_, "token", 2, [] {}) {
        for (std::size_t i = 0; i < connections_.size(); ++i) reconnect(i);
    }

    void run(std::string_view input) {
        while (input.size() >= 2) {
            const auto what = static_cast<unsigned char>(input[0]);
            const auto much = static_cast<unsigned char>(input[1]);
            input.remove_prefix(2);
            const std::string_view bytes = input.substr(0, what & 0x80 ? std::size_t{much} * 64 : much);
            if ((what & 0x1c) == 0 || (what & 0x1c) == 0x10) input.remove_prefix(bytes.size());
            step(what % 3, (what >> 2) & 7, bytes, much);
            check();
        }
    }

  private:
    void reconnect(std::size_t i) {
        connections_[i].reset();
        connections_[i] = std::make_unique<StoreSession>(sessions_, i + 2, now_);
    }

    void step(std::size_t i, int what, std::string_view bytes, unsigned char much) {
        StoreSession& session = *connections_[i];
        switch (what) {
            case 1: take(session, much); break;
            case 2: pass(std::chrono::milliseconds(much * 500)); break;
            case 3: reconnect(i); break;
            case 5: session.receive(encode(dptk::detail::StoreHello{.token = "token"}), now_); break;
            case 6: map_->set("local", "value"); break;
            default: receive(session, bytes); break;
        }
        sessions_.deliver(now_);
    }

    void receive(StoreSession& session, std::string_view bytes) {
        if (session.wants_input()) session.receive(bytes, now_);
    }

    void take(StoreSession& session, unsigned char much) {
        const std::size_t bytes = much == 0 ? session.to_send().size() : much;
        if (!session.to_send().empty()) session.sent(std::min(bytes, session.to_send().size()), now_);
    }

    void pass(std::chrono::milliseconds time) {
        now_ += time;
        for (auto& connection : connections_) {
            if (connection->deadline() && *connection->deadline() <= now_) connection->expire(now_);
        }
    }

    void check() {
        for (std::size_t i = 0; i < connections_.size(); ++i) {
            const StoreSession& session = *connections_[i];
            require(session.ended() || session.greeted() || session.deadline().has_value(),
                    "a connection without greeting has a deadline");
            require(session.ended() || session.to_send().empty() || session.deadline().has_value(),
                    "a reply has a deadline");
            require(session.to_send().size() <= dptk::detail::max_reply_bytes + 1024, "replies are bounded");
            if (session.ended() && session.to_send().empty()) reconnect(i);
        }
        require(sessions_.pending_bytes() < std::size_t{16} << 20, "pending data is bounded");
    }

    Deadline::Clock::time_point now_{};
    std::shared_ptr<SharedStoreMap> map_;
    StoreSessions sessions_;
    std::array<std::unique_ptr<StoreSession>, 3> connections_;
};

void parse_everything(std::string_view bytes) {
    static_cast<void>(dptk::detail::parse_greeting(bytes));
    static_cast<void>(dptk::detail::parse_hello(bytes));
    static_cast<void>(dptk::detail::parse_hello_reply(bytes));
    static_cast<void>(dptk::detail::parse_head(bytes));
    static_cast<void>(dptk::detail::parse_record(bytes));
    if (const auto request = dptk::detail::parse_request(bytes)) {
        require(encode(*request).substr(4) == bytes, "serializing a parsed request reproduces its bytes");
    }
    if (const auto reply = dptk::detail::parse_reply(bytes)) {
        require(encode(*reply).substr(4) == bytes, "serializing a parsed reply reproduces its bytes");
    }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    const std::string_view input(reinterpret_cast<const char*>(data), size);
    parse_everything(input);
    Server().run(input);
    return 0;
}

#ifdef DPTK_FUZZ_REPLAY

namespace {

void replay(std::string_view input) {
    LLVMFuzzerTestOneInput(reinterpret_cast<const std::uint8_t*>(input.data()), input.size());
}

/// Returns the steps by which these bytes arrive on a connection.
std::string arrive(int connection, std::string_view bytes) {
    std::string steps;
    while (!bytes.empty()) {
        const std::string_view some = bytes.substr(0, 255);
        steps += {static_cast<char>(connection * 32), static_cast<char>(some.size())};
        steps += some;
        bytes.remove_prefix(some.size());
    }
    return steps;
}

/// Returns one exchange per operation: the greeting, its reply, the request, its reply.
std::vector<std::pair<std::string, std::string>> seeds() {
    const std::vector<std::pair<std::string, StoreRequest>> requests = {
        {"set", {StoreOperation::set, 0, {"key", "value"}}},
        {"get", {StoreOperation::get, 1000, {"local"}}},
        {"find", {StoreOperation::find, 0, {"key"}}},
        {"add", {StoreOperation::add, -3, {"n"}}},
        {"compare_and_set", {StoreOperation::compare_and_set, 0, {"key", "", "value"}}},
        {"wait", {StoreOperation::wait, 5000, {"key", "local", "other"}}},
        {"erase", {StoreOperation::erase, 0, {"key"}}},
        {"last_will", {StoreOperation::last_will, 0, {"local", "lost"}}},
        {"goodbye", {StoreOperation::goodbye, 0, {}}},
    };
    const std::string hello = arrive(0, encode(dptk::detail::StoreHello{.token = "token"}));
    const std::string take("\x24\x00", 2);  // connection 0
    const std::string local("\x18\x00", 2);
    std::vector<std::pair<std::string, std::string>> all;
    for (const auto& [name, request] : requests) {
        all.emplace_back(name, hello + take + arrive(0, encode(request)) + local + take);
        all.emplace_back(name + "_request", encode(request).substr(4));
    }
    all.emplace_back("wrong_token", arrive(0, encode(dptk::detail::StoreHello{.token = "wrong"})));
    all.emplace_back("http", arrive(0, "GET / HTTP/1.1\r\n\r\n"));
    all.emplace_back(
        "reply",
        encode(dptk::detail::StoreReply{dptk::detail::StoreStatus::missing, 1, "text", {1, 2}}).substr(4));
    all.emplace_back("file", dptk::detail::encode_head({"host", 1, 2, "job", 3}));
    return all;
}

bool replay_file(const char* name) {
    std::FILE* file = std::fopen(name, "rb");
    if (file == nullptr) return false;
    std::string bytes(std::size_t{1} << 20, '\0');
    bytes.resize(std::fread(bytes.data(), 1, bytes.size(), file));
    std::fclose(file);
    replay(bytes);
    return true;
}

/// Replays a seed unchanged, truncated at each byte, and with each byte changed.
void replay_around(const std::string& seed) {
    replay(seed);
    for (std::size_t i = 0; i < seed.size(); ++i) {
        replay(std::string_view(seed).substr(0, i));
        for (const int change : {0x01, 0x20, 0x80, 0xff}) {
            std::string changed = seed;
            changed[i] = static_cast<char>(changed[i] ^ change);
            replay(changed);
        }
    }
}

void write_file(const std::string& name, const std::string& bytes) {
    std::FILE* file = std::fopen(name.c_str(), "wb");
    if (file == nullptr) std::exit(1);
    std::fwrite(bytes.data(), 1, bytes.size(), file);
    std::fclose(file);
}

}  // namespace

/// Replays the files that are its arguments, and the generated seeds. `--write DIRECTORY` writes the seeds
/// instead.
int main(int count, char** arguments) {
    if (count == 3 && std::string_view(arguments[1]) == "--write") {
        for (const auto& [name, bytes] : seeds()) write_file(arguments[2] + ("/" + name), bytes);
        return 0;
    }
    for (int i = 1; i < count; ++i) {
        if (replay_file(arguments[i])) continue;
        std::fprintf(stderr, "cannot read %s\n", arguments[i]);
        return 1;
    }
    for (const auto& [name, bytes] : seeds()) replay_around(bytes);
    std::printf("replayed %d files and %zu seeds\n", count - 1, seeds().size());
}

#endif
