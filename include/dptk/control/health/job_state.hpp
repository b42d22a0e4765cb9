/// Whether the ranks of a job can still communicate and, if not, the first cause. One object is shared by a
/// group and everything made from it: all thread ranks of a launch, or all groups of an MPI process.
/// Whoever waits for other ranks subscribes, so that a failure wakes it.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "dptk/core/config.hpp"
#include "dptk/core/error.hpp"

namespace DPTK_NAMESPACE::detail {

/// Something with waiting threads inside, which look at the JobState again when woken.
class FailureListener {
  public:
    virtual ~FailureListener() = default;
    virtual void wake() noexcept = 0;
};

/// What a failure is to this process: its own, or the consequence of another rank's.
enum class Failure : std::uint8_t { local, remote, deadline };

class JobState {
  public:
    /// Marks the job as broken and wakes all who wait. The first cause stays.
    void fail(std::string cause, Failure kind = Failure::local);

    [[nodiscard]] bool failed() const noexcept { return failed_; }

    /// The first cause; empty while all is well.
    [[nodiscard]] std::string cause() const;

    /// Meaningful once the job has failed.
    [[nodiscard]] Failure kind() const;

    /// Throws once the job is broken, with the first cause: TimeoutError where a deadline of this process
    /// struck, PeerLostError otherwise.
    void check() const;

    /// Waits for at most `timeout` until the job is broken; returns whether it is. For one who has noticed a
    /// failure, while another is about to learn its cause.
    bool wait_until_failed(std::chrono::milliseconds timeout) const;

    /// `subscriber` will be woken by a failure; if that has happened already, at once.
    void subscribe(const std::shared_ptr<FailureListener>& subscriber);

  private:
    mutable std::mutex mutex_;
    mutable std::condition_variable changed_;
    std::atomic<bool> failed_ = false;
    Failure kind_ = Failure::local;
    std::string cause_;
    std::vector<std::weak_ptr<FailureListener>> subscribers_;
};

/// Runs something that asks other ranks, or a store that goes with its rank. A rank that is lost is seldom
/// why the job ends: throws the job's first cause instead of a PeerLostError, where that is known within 2 s.
template <class Function>
void with_first_cause(const JobState& job_state, Function&& function) {
    try {
        function();
    } catch (const PeerLostError&) {
        constexpr std::chrono::seconds soon{2};
        static_cast<void>(job_state.wait_until_failed(soon));
        job_state.check();
        throw;
    }
}

}  // namespace DPTK_NAMESPACE::detail

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/control/health/job_state.ipp"
#endif
