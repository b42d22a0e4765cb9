// The handshake of two ranks, and the headers of their messages, as bytes.
#include <dptk/comm/tcp/handshake.hpp>
#include <dptk/comm/tcp/header.hpp>
#include <dptk/core/detail/siphash.hpp>

#include <array>
#include <cstring>

#include "support.hpp"

namespace {

using dptk::detail::TcpHandshake;
using dptk::detail::TcpHeader;
using dptk::detail::TcpIdentity;
using dptk::detail::TcpKind;
using State = TcpHandshake::State;

constexpr dptk::detail::Word128 key{1, 2};

/// Passes what one side has to send to the other. Returns the bytes.
std::string pass(TcpHandshake& from, TcpHandshake& to) {
    std::string bytes = from.take_output();
    if (!bytes.empty()) {
        REQUIRE(bytes.size() == to.wanted());
        to.receive(bytes);
    }
    return bytes;
}

}  // namespace

TEST_CASE("two ranks that know the key are connected, and know each other's rank") {
    for (const bool accepts : {true, false}) {
        TcpHandshake connecting = TcpHandshake::connect({.key = key, .rank = 2, .size = 4}, 1);
        TcpHandshake accepting = TcpHandshake::accept({.key = key, .rank = 1, .size = 4});
        pass(connecting, accepting);
        pass(accepting, connecting);
        CHECK(accepting.state() == State::reading);
        pass(connecting, accepting);
        CHECK(accepting.state() == State::verified);
        CHECK(accepting.peer() == 2);
        accepting.answer(accepts);
        pass(accepting, connecting);
        CHECK(connecting.state() == (accepts ? State::accepted : State::busy));
    }
}

TEST_CASE("the key is not sent, and no two handshakes have the same bytes") {
    std::string all;
    for (int round = 0; round < 2; ++round) {
        TcpHandshake connecting = TcpHandshake::connect({.key = key, .rank = 0, .size = 2}, 1);
        TcpHandshake accepting = TcpHandshake::accept({.key = key, .rank = 1, .size = 2});
        std::string bytes = pass(connecting, accepting) + pass(accepting, connecting);
        bytes += pass(connecting, accepting);
        const std::string key_bytes(reinterpret_cast<const char*>(key.data()), sizeof key);
        CHECK(!test::contains(bytes, key_bytes));
        CHECK(bytes != all);
        all = bytes;
    }
}

TEST_CASE("a rank without the key, of another job, or with wrong numbers is refused by either side") {
    const auto ends = [](const TcpIdentity& connecting_rank, int to, const TcpIdentity& accepting_rank) {
        TcpHandshake connecting = TcpHandshake::connect(connecting_rank, to);
        TcpHandshake accepting = TcpHandshake::accept(accepting_rank);
        pass(connecting, accepting);
        if (accepting.state() == State::failed) return accepting.problem();
        pass(accepting, connecting);
        if (connecting.state() == State::failed) return connecting.problem();
        pass(connecting, accepting);
        return accepting.problem();
    };
    CHECK(ends({.key = {1, 3}, .rank = 0, .size = 2}, 1, {.key = key, .rank = 1, .size = 2}) ==
          "it does not know the key of this job");
    CHECK(ends({.key = key, .rank = 0, .size = 4}, 3, {.key = key, .rank = 1, .size = 4}) ==
          "it connects as rank 0 to rank 3");
    CHECK(ends({.key = key, .rank = 5, .size = 8}, 1, {.key = key, .rank = 1, .size = 2}) ==
          "it connects as rank 5 to rank 1");
    CHECK(ends({.key = key, .rank = 1, .size = 2}, 1, {.key = key, .rank = 1, .size = 2}) ==
          "it connects as rank 1 to rank 1");
    TcpHandshake accepting = TcpHandshake::accept({.key = key, .rank = 1, .size = 2});
    accepting.receive(std::string(accepting.wanted(), 'x'));
    CHECK(accepting.state() == State::failed);
    CHECK(accepting.wanted() == 0);
    CHECK(accepting.take_output().empty());
}

TEST_CASE("bytes of an earlier handshake, repeated, prove nothing") {
    TcpHandshake connecting = TcpHandshake::connect({.key = key, .rank = 0, .size = 2}, 1);
    TcpHandshake accepting = TcpHandshake::accept({.key = key, .rank = 1, .size = 2});
    const std::string hello = pass(connecting, accepting);
    const std::string reply = pass(accepting, connecting);
    const std::string proof = pass(connecting, accepting);
    CHECK(accepting.state() == State::verified);

    TcpHandshake later = TcpHandshake::accept({.key = key, .rank = 1, .size = 2});
    later.receive(hello);
    CHECK(later.take_output() != reply);
    later.receive(proof);
    CHECK(later.problem() == "it does not know the key of this job");

    // A stranger returns the rank's own proof to it.
    TcpHandshake mirrored = TcpHandshake::connect({.key = key, .rank = 0, .size = 2}, 1);
    mirrored.receive(reply);
    CHECK(mirrored.problem() == "it does not know the key of this job");
}

TEST_CASE("headers that no rank sends are refused") {
    const auto parsed = [](const TcpHeader& header) {
        std::array<std::byte, sizeof header> bytes;
        std::memcpy(bytes.data(), &header, sizeof header);
        return dptk::detail::parse_tcp_header(bytes).has_value();
    };
    CHECK(parsed({.bytes = 1000, .tag = 3, .kind = TcpKind::message}));
    CHECK(parsed({.bytes = 1000, .tag = dptk::detail::collective_message, .kind = TcpKind::message}));
    CHECK(parsed({.bytes = std::uint64_t{1} << 40, .tag = 0, .kind = TcpKind::request}));
    CHECK_FALSE(parsed({.bytes = dptk::detail::max_early_bytes + 1, .kind = TcpKind::message}));
    CHECK_FALSE(parsed({.bytes = 10, .tag = -1, .kind = TcpKind::message}));
    CHECK_FALSE(parsed({.bytes = ~std::uint64_t{0}, .kind = TcpKind::request}));
    CHECK_FALSE(parsed({.bytes = ~std::uint64_t{0}, .kind = TcpKind::data}));
    CHECK_FALSE(parsed({.bytes = ~std::uint64_t{0}, .kind = TcpKind::credit}));
    CHECK_FALSE(parsed({.kind = TcpKind{0}}));
    CHECK_FALSE(parsed({.kind = TcpKind{200}}));
}

TEST_CASE("SipHash-2-4 with 128 bits has the values of its reference implementation") {
    const auto hash = [](std::size_t bytes) {
        std::string input;
        for (std::size_t i = 0; i < bytes; ++i) input += static_cast<char>(i);
        const dptk::detail::Word128 words =
            dptk::detail::siphash({0x0706050403020100U, 0x0f0e0d0c0b0a0908U}, input);
        std::string digits;
        for (const std::uint64_t word : words) {
            for (int i = 0; i < 8; ++i) {
                digits += "0123456789abcdef"[word >> (8 * i + 4) & 15];
                digits += "0123456789abcdef"[word >> (8 * i) & 15];
            }
        }
        return digits;
    };
    CHECK(hash(0) == "a3817f04ba25a8e66df67214c7550293");
    CHECK(hash(1) == "da87c1d86b99af44347659119b22fc45");
    CHECK(hash(8) == "3b62a9ba6258f5610f83e264f31497b4");
    CHECK(hash(15) == "5493e99933b0a8117e08ec0f97cfc3d9");
    CHECK(hash(48) == "f7e5aef549f782cf379055a608269b16");
}
