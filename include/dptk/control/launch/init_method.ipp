#pragma once

#include "dptk/control/launch/init_method.hpp"

#include <cstddef>
#include <utility>

#include "dptk/core/detail/text.hpp"
#include "dptk/core/error.hpp"

namespace DPTK_NAMESPACE::detail {

DPTK_INLINE std::uint16_t parse_port(std::string_view whole, std::string_view digits) {
    unsigned port = 0;
    for (const char digit : digits) {
        if (digit < '0' || digit > '9' || port > 65535) port = 65536;
        port = port * 10 + static_cast<unsigned>(digit - '0');
    }
    if (digits.empty() || port == 0 || port > 65535) {
        throw ArgumentError(text(whole, ": expected a port in [1, 65535], got '", digits, "'"));
    }
    return static_cast<std::uint16_t>(port);
}

DPTK_INLINE SocketAddress parse_address(std::string_view whole, std::string_view address,
                                        std::string_view expected) {
    const std::size_t colon = address.rfind(':');
    std::string_view host = address.substr(0, colon);
    if (colon == std::string_view::npos || host.empty())
        throw ArgumentError(text(whole, ": expected ", expected));
    if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
    return {std::string(host), parse_port(whole, address.substr(colon + 1))};
}

}  // namespace DPTK_NAMESPACE::detail

namespace DPTK_NAMESPACE {

DPTK_INLINE InitMethod parse_init_method(std::string_view method) {
    const auto rest_after = [&](std::string_view scheme) { return method.substr(scheme.size()); };
    if (method.empty()) return {};
    if (method == "env://") return {.rendezvous = RendezvousKind::env};
    if (method == "mpi://") return {.rendezvous = RendezvousKind::mpi};
    if (method == "slurm://") return {.rendezvous = RendezvousKind::slurm};
    if (method.starts_with("file:///")) {
        const std::string_view path = rest_after("file://");
        if (path.size() == 1)
            throw ArgumentError(detail::text("init_method ", method, ": expected the path of a file"));
        return {.rendezvous = RendezvousKind::file, .path = std::string(path)};
    }
    if (method.starts_with("tcp://")) {
        detail::SocketAddress address = detail::parse_address(detail::text("init_method ", method),
                                                              rest_after("tcp://"), "tcp://HOST:PORT");
        return {.rendezvous = RendezvousKind::tcp, .host = std::move(address.host), .port = address.port};
    }
    throw ArgumentError(detail::text("init_method ", method,
                                     ": expected env://, tcp://HOST:PORT, file:///PATH, mpi:// or slurm://"));
}

}  // namespace DPTK_NAMESPACE
