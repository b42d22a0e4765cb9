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

/// Blocks SIGPIPE in this thread while it exists. Gloo writes to sockets without MSG_NOSIGNAL, so that a
/// closed connection would kill this process.
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

/// Returns the only IPv4 address that is not a loopback address. If there are several or none, returns the
/// address of this host's name, or else a loopback address. Name servers are only asked if necessary, since
/// many ranks that ask at once wait for seconds.
[[nodiscard]] std::string default_address(const std::vector<InterfaceAddress>& addresses);

/// Returns the numeric address on which to listen. `interface` is the name of a network interface, a host
/// name or an address of this host, or empty for the default. Throws ArgumentError if it is none of these.
/// May block in the system's resolver.
[[nodiscard]] std::string choose_address(const std::string& interface);

/// Creates a Gloo device that listens at this address. Starts a thread. Throws Gloo's exceptions.
[[nodiscard]] std::shared_ptr<gloo::transport::Device> make_gloo_device(const std::string& address);

}  // namespace DPTK_NAMESPACE::detail

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/comm/gloo/device.ipp"
#include "dptk/core/error.hpp"
#endif
