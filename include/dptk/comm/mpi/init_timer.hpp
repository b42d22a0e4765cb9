/// Time limit of MPI_Init, which has none: it waits silently for ranks that have ended or are stopped.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "dptk/control/launch/launch.hpp"
#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE::detail {

/// Logs a warning if the object exists for longer than a minute or half of the timeout, and ends the process
/// at the timeout: DPTK_TIMEOUT, or 30 minutes. A second thread does this, since MPI_Init blocks.
class MpiInitTimer {
  public:
    MpiInitTimer();
    ~MpiInitTimer();
    MpiInitTimer(const MpiInitTimer&) = delete;
    MpiInitTimer& operator=(const MpiInitTimer&) = delete;

  private:
    void run();

    std::chrono::milliseconds timeout_;
    LaunchEnvironment launch_;
    std::mutex mutex_;
    std::condition_variable changed_;
    bool ended_ = false;
    std::thread thread_;
};

}  // namespace DPTK_NAMESPACE::detail

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/comm/mpi/init_timer.ipp"
#endif
