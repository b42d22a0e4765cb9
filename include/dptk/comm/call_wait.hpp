/// Waits for a transport of your own, which end when the call that they belong to has to end.
#pragma once

#include "dptk/control/health/job_state.hpp"
#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE {

/// Throws if the call of dptk that this thread executes has to end: TimeoutError if its time limit has
/// passed, PeerLostError, with the cause, if another rank has failed. Otherwise returns, also outside a call
/// of dptk. A transport that polls must call it between two polls. Does not block.
void check_call();

/// Blocks until data can be read from the file descriptor, or its other end is closed. Throws as check_call()
/// does as soon as the call has to end, and BackendError if the system cannot wait.
void wait_readable(int descriptor);

/// Blocks until data can be written to the file descriptor, or its other end is closed. Throws as
/// wait_readable() does.
void wait_writable(int descriptor);

namespace detail {

/// The job to which the call of the calling thread belongs; null outside calls.
inline thread_local JobState* job_of_call = nullptr;

/// Sets the job during this object's lifetime.
class CallWaits {
  public:
    explicit CallWaits(JobState& job) noexcept : before_(job_of_call) { job_of_call = &job; }
    ~CallWaits() { job_of_call = before_; }
    CallWaits(const CallWaits&) = delete;
    CallWaits& operator=(const CallWaits&) = delete;

  private:
    JobState* before_;
};

}  // namespace detail

}  // namespace DPTK_NAMESPACE

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/comm/call_wait.ipp"
#endif
