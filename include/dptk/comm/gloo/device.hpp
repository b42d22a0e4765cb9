/// Selection of the network interface and address at which Gloo listens, and creation of Gloo's device (its
/// thread and sockets).
#pragma once

#include <gloo/transport/tcp/device.h>

#include <memory>
#include <string>
#include <vector>

#include "dptk/comm/gloo/library.hpp"
#include "dptk/control/net/host.hpp"
#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE::detail {

/// Blocks SIGPIPE in the calling thread during this object's lifetime. Gloo writes to sockets without
/// MSG_NOSIGNAL, so a closed connection would otherwise kill this process.
class BrokenPipeIgnored {
  public:
    BrokenPipeIgnored();
    ~BrokenPipeIgnored();
    BrokenPipeIgnored(const BrokenPipeIgnored&) = delete;
    BrokenPipeIgnored& operator=(const BrokenPipeIgnored&) = delete;

  private:
    sigset_t broken_pipe_;
    sigset_t before_;
};

/// Returns the only IPv4 address that is not a loopback address. If there are several such addresses or none,
/// returns the address to which this host's name resolves, or else a loopback address. The name is resolved
/// only if necessary: if many ranks query name servers at once, they wait for seconds.
[[nodiscard]] std::string default_address(const std::vector<InterfaceAddress>& addresses);

/// Returns the numeric address on which to listen. `interface` is a network interface, a host name or an
/// address of this host, or empty for the default. Throws ArgumentError if `interface` is none of these. May
/// block in the system's resolver.
[[nodiscard]] std::string choose_address(const std::string& interface);

/// Creates a Gloo device that listens at `address`. Starts a thread. Throws Gloo's exceptions.
[[nodiscard]] std::shared_ptr<gloo::transport::Device> make_gloo_device(const std::string& address);

}  // namespace DPTK_NAMESPACE::detail

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/comm/gloo/device.ipp"
#endif
