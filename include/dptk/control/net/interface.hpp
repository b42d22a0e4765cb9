/// Selection of the network interface and address at which a transport listens.
#pragma once

#include <string>
#include <vector>

#include "dptk/control/net/host.hpp"
#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE::detail {

/// Returns the only IPv4 address that is not a loopback address. If there are several such addresses or none,
/// returns the address to which this host's name resolves, or else a loopback address. The name is resolved
/// only if necessary: if many ranks query name servers at once, they wait for seconds.
[[nodiscard]] std::string default_address(const std::vector<InterfaceAddress>& addresses);

/// Returns the numeric address on which to listen. `interface` is a network interface, a host name or an
/// address of this host, or empty for the default. Throws ArgumentError if `interface` is none of these. May
/// block in the system's resolver.
[[nodiscard]] std::string choose_address(const std::string& interface);

}  // namespace DPTK_NAMESPACE::detail

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/control/net/interface.ipp"
#endif
