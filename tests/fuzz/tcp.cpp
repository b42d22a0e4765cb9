// Fuzz target of what ranks receive over TCP: passes arbitrary bytes, in arbitrary pieces, to both sides of
// the handshake, and to an open connection.
//
// With libFuzzer:
//     clang++ -std=c++20 -g -O1 -fsanitize=fuzzer,address,undefined -I include tests/fuzz/tcp.cpp
//     ./a.out
// With -DDPTK_FUZZ_REPLAY it is a plain program that runs generated inputs: as many as its argument says.
#include <dptk/comm/tcp/connection.hpp>
#include <dptk/comm/tcp/handshake.hpp>

#include <sys/socket.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <vector>

namespace {

using dptk::detail::TcpConnection;
using dptk::detail::TcpHandshake;
using dptk::detail::TcpHeader;
using dptk::detail::TcpKind;

void require(bool holds, const char* what) {
    if (holds) return;
    std::fprintf(stderr, "broken: %s\n", what);
    std::abort();
}

/// A rank without the key never gets further than a failure.
void run_handshake(std::string_view input, bool connects) {
    const dptk::detail::TcpIdentity self{.key = {1, 2}, .rank = 1, .size = 4};
    TcpHandshake handshake = connects ? TcpHandshake::connect(self, 2) : TcpHandshake::accept(self);
    while (handshake.wanted() != 0 && input.size() >= handshake.wanted()) {
        const std::string_view piece = input.substr(0, handshake.wanted());
        input.remove_prefix(piece.size());
        handshake.receive(piece);
    }
    require(
        handshake.state() == TcpHandshake::State::reading || handshake.state() == TcpHandshake::State::failed,
        "a stranger is accepted");
}

/// Stores the data of messages, and discards other data, as a rank does for a group that it has closed.
class Reader final : public dptk::detail::TcpReader {
  public:
    std::byte* begin(const TcpHeader& header) override {
        require(!open_, "a header within data");
        open_ = true;
        if (header.kind != TcpKind::message) return nullptr;
        require(header.bytes <= dptk::detail::max_early_bytes, "a large early message");
        data_ = std::make_unique<std::byte[]>(header.bytes);
        return data_.get();
    }

    void end(const TcpHeader&) override {
        require(open_, "an end without a beginning");
        open_ = false;
        data_.reset();
    }

  private:
    bool open_ = false;
    std::unique_ptr<std::byte[]> data_;
};

void run_connection(std::string_view input, std::size_t piece) {
    int ends[2];
    require(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends) == 0, "socketpair");
    const dptk::detail::FileDescriptor other(ends[0]);
    TcpConnection connection{dptk::detail::Socket(dptk::detail::FileDescriptor(ends[1]))};
    std::vector<std::byte> workspace(256);
    Reader reader;
    while (!input.empty()) {
        const ssize_t sent =
            ::send(other.number(), input.data(), std::min(piece, input.size()), MSG_NOSIGNAL);
        if (sent > 0) input.remove_prefix(static_cast<std::size_t>(sent));
        if (!connection.receive(workspace, reader)) {
            require(!connection.problem().empty(), "a connection that ends without a reason");
            return;
        }
    }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    if (size < 2) return 0;
    const std::string_view input(reinterpret_cast<const char*>(data) + 2, size - 2);
    switch (data[0] % 3) {
        case 0: run_handshake(input, false); break;
        case 1: run_handshake(input, true); break;
        default: run_connection(input, std::size_t{1} + data[1]); break;
    }
    return 0;
}

#ifdef DPTK_FUZZ_REPLAY

namespace {

/// Generates the bytes of several messages, of which some are wrong.
std::string generate(std::mt19937& random) {
    std::string input{static_cast<char>(random()), static_cast<char>(random())};
    const auto append = [&](const void* bytes, std::size_t size) {
        input.append(static_cast<const char*>(bytes), size);
    };
    if (input[0] % 3 != 2 && random() % 2 == 0) {
        constexpr std::uint64_t magic = 0x3170'6374'6b74'7064U;
        append(&magic, sizeof magic);
        const std::uint32_t ranks[2] = {static_cast<std::uint32_t>(random() % 5), 1};
        append(ranks, sizeof ranks);
    }
    for (std::size_t messages = random() % 6; messages > 0; --messages) {
        TcpHeader header{.group = random() % 3,
                         .bytes = random() % 4 == 0 ? random() : random() % 600,
                         .id = random() % 3,
                         .tag = static_cast<std::int32_t>(random() % 4) - 1,
                         .kind = static_cast<TcpKind>(random() % 8)};
        append(&header, sizeof header);
        input.append(std::min<std::size_t>(header.bytes, random() % 700), 'd');
    }
    for (std::size_t changes = random() % 3; changes > 0 && input.size() > 2; --changes)
        input[2 + random() % (input.size() - 2)] = static_cast<char>(random());
    return input;
}

}  // namespace

int main(int argc, char** argv) {
    const long runs = argc > 1 ? std::atol(argv[1]) : 20'000;
    std::mt19937 random(1);
    for (long run = 0; run < runs; ++run) {
        const std::string input = generate(random);
        LLVMFuzzerTestOneInput(reinterpret_cast<const std::uint8_t*>(input.data()), input.size());
    }
    std::printf("%ld inputs\n", runs);
}

#endif
