// test_launch strangers HOST PORT [CONNECTIONS [OPEN]]: connects to a port repeatedly, as port scanners and
// other jobs do, and sends invalid data, incomplete requests, or nothing. Makes 10,000 connections by
// default, of which at most 900 are open at a time. With 0 connections it runs until it is killed.
#include <dptk/control/net/socket.hpp>
#include <dptk/control/store/detail/store_protocol.hpp>
#include <dptk/core/error.hpp>

#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "command.hpp"

namespace launch::strangers {

namespace {

using dptk::detail::Deadline;
using dptk::detail::Socket;

std::vector<std::string> things_to_say() {
    const std::string hello = encode(dptk::detail::StoreHello{});
    const std::string request =
        encode(dptk::detail::StoreRequest{dptk::detail::StoreOperation::set, 0, {"stranger", "value"}});
    return {
        "",                                                         // no data
        "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",                //
        std::string("\x16\x03\x01\x02\x00\x01\x00", 7),             // TLS
        std::string(4096, '\xff'),                                  //
        hello.substr(0, hello.size() / 2),                          // an incomplete greeting
        "dptkstor\xff\xff\xff\xff",                                 // a greeting that announces 4 GiB
        encode(dptk::detail::StoreHello{.token = "wrong token"}),   //
        hello + request.substr(0, request.size() / 2),              // an incomplete request
        hello + std::string("\x00\x00\x10\x00", 4) + "ten bytes.",  // 1 MiB announced, 10 bytes sent
    };
}

void say(const Socket& socket, const std::string& what) {
    try {
        socket.send_all(what, Deadline(std::chrono::seconds(1)));
    } catch (const dptk::Error&) {
        // The server has closed the connection.
    }
}

int start(const Words& words) {
    if (words.size() < 2) {
        std::fprintf(stderr, "usage: strangers HOST PORT [CONNECTIONS [OPEN]]\n");
        return 2;
    }
    const std::string host = words[0];
    const auto port = static_cast<std::uint16_t>(std::stoi(words[1]));
    const std::size_t connections = words.size() > 2 ? std::stoul(words[2]) : 10'000;
    const std::size_t most_open = words.size() > 3 ? std::stoul(words[3]) : 900;
    const std::vector<std::string> things = things_to_say();
    std::vector<Socket> open(most_open);
    std::size_t connected = 0;
    for (std::size_t i = 0; connections == 0 || i < connections; ++i) {
        Socket& socket = open[i % most_open];
        socket = Socket();
        auto result = dptk::detail::connect_to(host, port, Deadline(std::chrono::seconds(1)));
        if (!result.socket.is_open()) continue;
        ++connected;
        socket = std::move(result.socket);
        say(socket, things[i % things.size()]);
    }
    std::printf("%zu of %zu connections\n", connected, connections);
    return 0;
}

const Command command("strangers", start);

}  // namespace

}  // namespace launch::strangers
