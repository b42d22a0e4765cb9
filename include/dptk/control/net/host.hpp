/// Host identity: the name and identity of this host, the process label, and the network addresses.
#pragma once

#include <sys/socket.h>

#include <span>
#include <string>
#include <vector>

#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE::detail {

[[nodiscard]] std::string host_name();

/// Returns a description of this process for messages: "host a, process 17".
[[nodiscard]] std::string process_label();

/// Returns a string that is equal for processes on the same host: the host name, the boot id of the kernel
/// and the network namespace. Containers usually differ in one of these, and then count as different hosts.
[[nodiscard]] std::string host_identity();

/// The local rank of a process, and the number of ranks on its host.
struct LocalPlace {
    int rank = 0;
    int size = 1;
};

/// Returns the local rank and size of `rank`. `hosts` contains the host of each rank; if `hosts` has no entry
/// for `rank`, the rank is considered alone on its host.
[[nodiscard]] LocalPlace local_place(std::span<const std::string> hosts, int rank);

/// Returns host_identity() with spaces replaced by underscores, for space-separated lines.
[[nodiscard]] std::string host_word();

/// A numeric address of this host, and the network interface that has this address.
struct InterfaceAddress {
    std::string interface;
    std::string address;
    int family = AF_INET;
    bool loopback = false;
};

/// Returns the addresses of all interfaces that are up, IPv4 before IPv6. Omits link-local addresses, which
/// are not valid on other hosts.
[[nodiscard]] std::vector<InterfaceAddress> interface_addresses();

/// Returns whether a numeric address is a loopback address, at which other hosts do not reach this one.
[[nodiscard]] bool is_loopback(const std::string& address);

/// Returns the address at which the processes of this host reach each other: "127.0.0.1", or "::1" if the
/// loopback interface has only this address.
[[nodiscard]] std::string loopback_address();

/// Returns the addresses at which other processes may reach this host; loopback addresses are last.
[[nodiscard]] std::vector<std::string> own_addresses();

}  // namespace DPTK_NAMESPACE::detail

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/control/net/host.ipp"
#endif
