#pragma once

#include "dptk/control/net/interface.hpp"

#include "dptk/control/net/socket.hpp"
#include "dptk/core/detail/text.hpp"
#include "dptk/core/error.hpp"

namespace DPTK_NAMESPACE::detail {

/// Returns a list for error texts: "lo (127.0.0.1), eth0 (10.0.0.7)".
[[nodiscard]] DPTK_INLINE std::string interfaces_text(const std::vector<InterfaceAddress>& addresses) {
    std::string out;
    for (const InterfaceAddress& one : addresses) {
        if (!out.empty()) out += ", ";
        out += text(one.interface, " (", one.address, ')');
    }
    return out.empty() ? "none" : out;
}

/// Returns the addresses of this host to which `name` resolves. Any address in 127.0.0.0/8 stands for the
/// loopback interface.
[[nodiscard]] DPTK_INLINE std::vector<InterfaceAddress> resolve_here(
    const std::string& name, const std::vector<InterfaceAddress>& addresses) {
    std::vector<InterfaceAddress> found;
    for (const int family : {AF_INET, AF_INET6}) {
        const ResolvedAddresses resolved = resolve(name.c_str(), 0, family, 0);
        for (const addrinfo* one = resolved.first.get(); one != nullptr; one = one->ai_next) {
            const std::string number = socket_address(one->ai_addr, one->ai_addrlen).host;
            const bool loopback = family == AF_INET && number.starts_with("127.");
            for (const InterfaceAddress& local : addresses) {
                if (local.family != family) continue;
                if (local.address == number || (loopback && local.loopback)) found.push_back(local);
            }
        }
    }
    return found;
}

DPTK_INLINE std::string default_address(const std::vector<InterfaceAddress>& addresses) {
    std::vector<std::string> outside;
    std::string loopback;
    for (const InterfaceAddress& one : addresses) {
        if (one.loopback && loopback.empty()) loopback = one.address;
        if (!one.loopback && one.family == AF_INET) outside.push_back(one.address);
    }
    if (outside.size() == 1) return outside.front();
    for (const InterfaceAddress& one : resolve_here(host_name(), addresses)) {
        if (!one.loopback) return one.address;
    }
    return loopback.empty() ? "127.0.0.1" : loopback;
}

DPTK_INLINE std::string choose_address(const std::string& interface) {
    const std::vector<InterfaceAddress> addresses = interface_addresses();
    if (interface.empty()) return default_address(addresses);
    for (const InterfaceAddress& one : addresses) {
        if (one.interface == interface) return one.address;
    }
    const std::vector<InterfaceAddress> found = resolve_here(interface, addresses);
    if (!found.empty()) return found.front().address;
    throw ArgumentError(text("\"", interface, "\" is not a network interface, host name or address of ",
                             host_name(), "; its interfaces: ", interfaces_text(addresses)));
}

}  // namespace DPTK_NAMESPACE::detail
