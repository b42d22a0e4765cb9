/// Reserved port: a free TCP port of this host that stays reserved while the object exists. The system does
/// not assign it to other programs, but a program that binds it by number, with SO_REUSEADDR, can listen on
/// it.
#pragma once

#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE::detail {

class ReservedPort {
  public:
    /// Reserves a port. Throws BackendError if no port is free.
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
#endif
