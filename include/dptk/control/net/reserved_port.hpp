/// A TCP port of this host that is free, and kept so while the object lives: no other program is given it by
/// chance, but one that asks for it by number, with SO_REUSEADDR, can listen on it.
#pragma once

#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE::detail {

class ReservedPort {
  public:
    /// Throws BackendError where no port is to be had.
    ReservedPort();

    ReservedPort(const ReservedPort&) = delete;
    ReservedPort& operator=(const ReservedPort&) = delete;
    ~ReservedPort();

    [[nodiscard]] int number() const noexcept { return number_; }

  private:
    int socket_;
    int number_ = 0;
};

}  // namespace DPTK_NAMESPACE::detail

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/control/net/reserved_port.ipp"
#include "dptk/core/error.hpp"
#endif
