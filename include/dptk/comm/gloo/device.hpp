/// Where Gloo listens on this host: the choice of a network address, and the device that owns the thread and
/// the sockets behind it.
#pragma once

#include <gloo/transport/tcp/device.h>

#include <memory>
#include <string>
#include <vector>

#include "dptk/comm/gloo/library.hpp"
#include "dptk/control/net/host.hpp"
#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE::detail {

/// Gloo writes to sockets as if they were files: a peer that has gone would end this process by SIGPIPE.
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

/// The only IPv4 address that other hosts could reach; else the one behind this host's name; else a loopback
/// address. Name servers are asked where nothing else decides, since many ranks that ask at once wait for
/// seconds.
[[nodiscard]] std::string default_address(const std::vector<InterfaceAddress>& addresses);

/// The address on which to listen, in numbers. `interface` is the name of a network interface, a host name or
/// an address of this host, or empty for the default. Throws ArgumentError where it is none of these. May
/// block in the system's resolver.
[[nodiscard]] std::string choose_address(const std::string& interface);

/// Starts a thread. Throws what Gloo throws.
[[nodiscard]] std::shared_ptr<gloo::transport::Device> make_gloo_device(const std::string& address);

}  // namespace DPTK_NAMESPACE::detail

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/comm/gloo/device.ipp"
#include "dptk/core/error.hpp"
#endif
