/// Time limit of MPI_Init and MPI_Finalize, which wait silently for ranks that have ended or are stopped.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "dptk/control/launch/launcher.hpp"
#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE::detail {

/// Logs a warning if the object exists for longer than a minute or half of the timeout, and ends the process
/// at the timeout: DPTK_TIMEOUT, or 30 minutes. A second thread does this, since the call blocks.
class MpiCallTimer {
  public:
    /// `call` is the name of the MPI function, for messages. The string must outlive this object.
    explicit MpiCallTimer(const char* call);
    ~MpiCallTimer();
    MpiCallTimer(const MpiCallTimer&) = delete;
    MpiCallTimer& operator=(const MpiCallTimer&) = delete;

  private:
    void run();

    const char* call_;
    std::chrono::milliseconds timeout_;
    LaunchEnvironment launch_;
    std::mutex mutex_;
    std::condition_variable changed_;
    bool ended_ = false;
    std::thread thread_;
};

}  // namespace DPTK_NAMESPACE::detail

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/comm/mpi/call_timer.ipp"
#endif
