/// Closes connections only after everything that was sent has reached the other ranks. If a program ended
/// earlier, or closed a connection on which data still arrives, the system would discard what is being sent.
#pragma once

#include <chrono>
#include <memory>
#include <utility>
#include <vector>

#include "dptk/comm/tcp/connection.hpp"
#include "dptk/control/health/program_end.hpp"
#include "dptk/control/health/watchdog.hpp"
#include "dptk/control/process/deadline.hpp"
#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE::detail {

class TcpFarewell final : public WatchdogTask {
  public:
    /// Sends what the connections have queued, and closes each of them once it has arrived, at the latest
    /// after the time limit. Does not block; the end of the program waits for it.
    static void begin(std::vector<TcpConnection> connections, std::chrono::milliseconds time_limit) noexcept;

    DPTK_INLINE void look() noexcept override;

    [[nodiscard]] std::chrono::milliseconds interval() const noexcept override {
        return std::chrono::milliseconds(10);
    }

  private:
    TcpFarewell(std::vector<TcpConnection> connections, std::chrono::milliseconds time_limit)
        : delays_end_(ProgramEnd::get().begin_shutdown(time_limit + std::chrono::seconds(1))),
          connections_(std::move(connections)),
          deadline_(time_limit) {}

    /// Returns whether everything has reached the other rank, or the connection has ended.
    [[nodiscard]] static bool is_done(TcpConnection& connection);

    /// The end of the program waits for it. The first member, so that it is destroyed after the connections.
    const std::shared_ptr<void> delays_end_;
    std::vector<TcpConnection> connections_;
    const Deadline deadline_;
    std::shared_ptr<TcpFarewell> self_;  // until it is done
};

}  // namespace DPTK_NAMESPACE::detail

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/comm/tcp/farewell.ipp"
#endif
