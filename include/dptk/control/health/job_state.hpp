/// Job state: whether the ranks of a job can still communicate and, if they cannot, the first cause. A group
/// shares its JobState with all groups that are created from it. All thread ranks of a launch, and all groups
/// of an MPI process, also share one JobState. Code that waits for other ranks subscribes to the JobState, so
/// that a failure ends the wait.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "dptk/control/health/failure_report.hpp"
#include "dptk/core/config.hpp"
#include "dptk/core/error.hpp"

namespace DPTK_NAMESPACE::detail {

/// Interface of objects that are notified when the job fails, for example to wake threads that wait for other
/// ranks.
class FailureListener {
  public:
    virtual ~FailureListener() = default;
    virtual void wake() noexcept = 0;
};

/// Where a failure originated: in this process, on another rank, or in a deadline of this process.
enum class Failure : std::uint8_t { local, remote, deadline };

class JobState : public std::enable_shared_from_this<JobState> {
  public:
    /// Whether the ranks that are left can continue after a failure, as a new group.
    enum class Kind : bool { fixed, elastic };

    explicit JobState(Kind kind = Kind::fixed) : is_elastic_(kind == Kind::elastic) {}
    ~JobState();
    JobState(const JobState&) = delete;
    JobState& operator=(const JobState&) = delete;

    /// Marks the job as broken and wakes all waiting threads. Later calls do not replace the first cause.
    void fail(FailureCause cause, Failure kind = Failure::local);
    void fail(std::string cause, Failure kind = Failure::local) {
        fail(FailureCause{std::move(cause)}, kind);
    }

    [[nodiscard]] bool failed() const noexcept { return failed_; }

    [[nodiscard]] bool is_elastic() const noexcept { return is_elastic_; }

    /// Returns the first cause, or an empty string if the job has not failed.
    [[nodiscard]] std::string cause() const;

    /// Returns the first cause with the ranks that it blames.
    [[nodiscard]] FailureCause full_cause() const;

    /// Returns where the failure originated. Meaningful only after the job has failed.
    [[nodiscard]] Failure kind() const;

    /// Throws the first cause if the job is broken: TimeoutError if a deadline of this process has passed,
    /// MembershipChanged if the job is elastic, PeerLostError otherwise.
    void check() const;

    /// Blocks until the job is broken, for at most `timeout`; returns whether it is broken. For a caller
    /// that has detected a failure whose cause another thread is about to report.
    bool wait_until_failed(std::chrono::milliseconds timeout) const;

    /// Returns a file descriptor that poll() reports as readable once the job is broken, or -1 if the system
    /// cannot create one. It is valid as long as this object exists.
    [[nodiscard]] int failure_descriptor();

    /// Records that this process has logged the cause.
    void mark_logged() noexcept { is_logged_ = true; }

    /// Returns whether this process has logged the cause, and `message` repeats it.
    [[nodiscard]] bool has_logged(std::string_view message) const noexcept;

    /// Registers `subscriber` to be woken by a failure; wakes it at once if the job has already failed.
    void subscribe(const std::shared_ptr<FailureListener>& subscriber);

  private:
    const bool is_elastic_;
    mutable std::mutex mutex_;
    mutable std::condition_variable changed_;
    std::atomic<bool> failed_ = false;
    std::atomic<bool> is_logged_ = false;
    Failure kind_ = Failure::local;
    FailureCause cause_;
    std::vector<std::weak_ptr<FailureListener>> subscribers_;
    int failure_descriptor_ = -1;
};

/// Returns an error that this rank alone has thrown as a cause. Blames the other end of a message, too.
[[nodiscard]] FailureCause cause_of(const Error& error, int rank);

/// Runs a function that depends on other ranks, or on a store that ends with the rank that serves it. Since
/// the loss of a rank is often only a consequence of an earlier failure, a PeerLostError of the function is
/// replaced by the first cause of the job's failure if that cause is known within 2 s.
template <class Function>
decltype(auto) with_first_cause(const JobState& job_state, Function&& function) {
    try {
        return function();
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
