/// Who this process is to others: its host, its id, and the addresses at which it can be reached.
#pragma once

#include <sys/socket.h>

#include <span>
#include <string>
#include <vector>

#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE::detail {

[[nodiscard]] std::string host_name();

/// For messages: "host a, process 17".
[[nodiscard]] std::string process_label();

/// Equal for processes that share a host: a kernel, and a name. Containers have names of their own.
[[nodiscard]] std::string host_identity();

/// The position of a rank among those of its host, and how many there are.
struct LocalPlace {
    int rank = 0;
    int size = 1;
};

/// `hosts` are those of all ranks, by rank. Where they are not known, each rank has a host of its own.
[[nodiscard]] LocalPlace local_place(std::span<const std::string> hosts, int rank);

/// host_identity() without blanks, for lines of words.
[[nodiscard]] std::string host_word();

/// A numeric address of this host, and the network interface that has it.
struct InterfaceAddress {
    std::string interface;
    std::string address;
    int family = AF_INET;
    bool loopback = false;
};

/// Those of all interfaces that are up, IPv4 before IPv6; link-local ones, which mean nothing elsewhere, left
/// out.
[[nodiscard]] std::vector<InterfaceAddress> interface_addresses();

/// The addresses at which others may reach this host; those of the loopback come last.
[[nodiscard]] std::vector<std::string> own_addresses();

}  // namespace DPTK_NAMESPACE::detail

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/control/net/host.ipp"
#endif
