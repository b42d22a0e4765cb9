/// Creation of Gloo's device: its thread and sockets.
#pragma once

#include <gloo/transport/tcp/device.h>
#include <signal.h>

#include <memory>
#include <string>

#include "dptk/comm/gloo/library.hpp"
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

/// Creates a Gloo device that listens at `address`. Starts a thread. Throws Gloo's exceptions.
[[nodiscard]] std::shared_ptr<gloo::transport::Device> make_gloo_device(const std::string& address);

}  // namespace DPTK_NAMESPACE::detail

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/comm/gloo/device.ipp"
#endif
