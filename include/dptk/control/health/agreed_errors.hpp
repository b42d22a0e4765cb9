/// Agreed errors: an exception that all ranks throw together is agreed, and leaves the job usable; an error
/// that only this rank throws fails the job. A destructor cannot see the exception that unwinds the stack,
/// but can check whether the last agreed error still exists. Each rank has one AgreedErrors object, which a
/// group shares with its duplicates.
#pragma once

#include <atomic>
#include <exception>
#include <memory>
#include <mutex>

#include "dptk/control/health/job_state.hpp"
#include "dptk/core/config.hpp"
#include "dptk/core/error.hpp"

namespace DPTK_NAMESPACE::detail {

class AgreedErrors {
  public:
    /// Records an agreed error, until the error object and its copies have been destroyed.
    void note(const Error& error);

    /// Returns whether the last agreed error, or a copy of it, still exists, and the program has made no call
    /// since.
    [[nodiscard]] bool is_unwinding() const;

    /// Notes that the program makes a call: if no exception unwinds this thread or is being handled, an
    /// earlier agreed error has been caught. Does nothing on dptk's own threads.
    void note_call() noexcept {
        if (has_noted_.load(std::memory_order_relaxed)) forget_if_caught();
    }

  private:
    void forget_if_caught() noexcept;

    mutable std::mutex mutex_;
    std::weak_ptr<const void> last_;
    std::atomic<bool> has_noted_ = false;
};

/// Handles the current exception: records an agreed error, and fails the job for anything else. Rethrows it;
/// in an elastic job, throws MembershipChanged in the place of a PeerLostError.
[[noreturn]] void rethrow_after_report(JobState& job_state, AgreedErrors& agreed_errors, int rank);

}  // namespace DPTK_NAMESPACE::detail

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/control/health/agreed_errors.ipp"
#endif
