#pragma once

#include "dptk/control/net/host.hpp"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <unistd.h>

#include <cstddef>
#include <cstdio>
#include <memory>

#include "dptk/core/detail/algorithms.hpp"
#include "dptk/core/detail/text.hpp"

namespace DPTK_NAMESPACE::detail {

DPTK_INLINE std::string host_name() {
    char name[256] = {};
    if (gethostname(name, sizeof name - 1) != 0 || name[0] == '\0') return "unnamed host";
    return name;
}

DPTK_INLINE std::string process_label() {
    return text("host ", host_name(), ", process ", getpid());
}

DPTK_INLINE std::string host_identity() {
    char boot[64] = {};
    const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(
        std::fopen("/proc/sys/kernel/random/boot_id", "re"), &std::fclose);
    if (file && std::fgets(boot, sizeof boot, file.get()) == nullptr) boot[0] = '\0';
    std::string out = host_name() + "@" + boot;
    while (!out.empty() && out.back() == '\n') out.pop_back();
    char network[64] = {};
    if (::readlink("/proc/self/ns/net", network, sizeof network - 1) > 0) out += text('/', network);
    return out;
}

DPTK_INLINE LocalPlace local_place(std::span<const std::string> hosts, int rank) {
    const auto own = static_cast<std::size_t>(rank);
    if (own >= hosts.size()) return {};
    const auto count = [&](std::span<const std::string> some) {
        return static_cast<int>(detail::count(some, hosts[own]));
    };
    return {count(hosts.first(own)), count(hosts)};
}

DPTK_INLINE std::string host_word() {
    std::string out = host_identity();
    for (char& letter : out) {
        if (letter == ' ') letter = '_';
    }
    return out;
}

DPTK_INLINE std::vector<InterfaceAddress> interface_addresses() {
    ifaddrs* list = nullptr;
    if (getifaddrs(&list) != 0) return {{"lo", "127.0.0.1", AF_INET, true}};
    const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> owner(list, &freeifaddrs);
    std::vector<InterfaceAddress> found;
    for (const int family : {AF_INET, AF_INET6}) {
        for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
            if (entry->ifa_addr == nullptr || entry->ifa_addr->sa_family != family) continue;
            if ((entry->ifa_flags & IFF_UP) == 0) continue;
            const void* address = &reinterpret_cast<const sockaddr_in*>(entry->ifa_addr)->sin_addr;
            if (family == AF_INET6) {
                const auto* ipv6 = reinterpret_cast<const sockaddr_in6*>(entry->ifa_addr);
                if (IN6_IS_ADDR_LINKLOCAL(&ipv6->sin6_addr)) continue;
                address = &ipv6->sin6_addr;
            }
            char text[INET6_ADDRSTRLEN] = {};
            if (inet_ntop(family, address, text, sizeof text) == nullptr) continue;
            found.push_back({entry->ifa_name, text, family, (entry->ifa_flags & IFF_LOOPBACK) != 0});
        }
    }
    return found;
}

DPTK_INLINE bool is_loopback(const std::string& address) {
    return address.starts_with("127.") || address == "::1";
}

DPTK_INLINE std::string loopback_address() {
    const std::vector<InterfaceAddress> addresses = interface_addresses();
    const auto has = [&](const char* address) {
        return detail::find(addresses, address, &InterfaceAddress::address) != addresses.end();
    };
    return !has("127.0.0.1") && has("::1") ? "::1" : "127.0.0.1";
}

DPTK_INLINE std::vector<std::string> own_addresses() {
    std::vector<std::string> addresses;
    for (const bool loopback : {false, true}) {
        for (const InterfaceAddress& one : interface_addresses()) {
            if (one.loopback == loopback) addresses.push_back(one.address);
        }
    }
    return addresses;
}

}  // namespace DPTK_NAMESPACE::detail
