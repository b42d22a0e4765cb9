/// Barrier and shared call table of thread ranks: each rank publishes its call, reads the calls of all
/// ranks, and returns when all have finished. If a rank fails or leaves, the others stop waiting.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "dptk/comm/collective.hpp"
#include "dptk/comm/thread/messages.hpp"
#include "dptk/control/health/job_state.hpp"
#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE::detail {

class ThreadHub final : public FailureListener {
  public:
    ThreadHub(int size, std::shared_ptr<JobState> job_state);

    /// Creates a hub that is notified when the job fails.
    [[nodiscard]] static std::shared_ptr<ThreadHub> make(int size,
                                                         const std::shared_ptr<JobState>& job_state);

    [[nodiscard]] int size() const noexcept { return size_; }
    [[nodiscard]] ThreadMailbox& mailbox() noexcept { return *mailbox_; }

    /// Publishes this rank's call and blocks until all ranks have published their calls. Afterwards, until
    /// this rank calls finish(), it may access calls() and the memory to which these calls refer. Throws
    /// PeerLostError if a rank is lost.
    void publish_and_wait(int rank, const Collective& call);

    /// Blocks until all ranks have finished accessing each other's memory. Blocks even if the job has failed,
    /// so that no rank frees memory that another rank accesses. The wait ends, since no rank blocks between
    /// publish_and_wait() and finish().
    void finish(int rank) { pass(rank, Waiting::must_end); }

    /// Records that this rank has not completed its part of the call. Must be called before finish().
    void mark_incomplete() noexcept { spoiled_ = true; }

    /// Throws PeerLostError if a rank has not completed its part of the call. Must be called after finish().
    void check_complete() const;

    /// Returns the calls of all ranks, by rank.
    [[nodiscard]] const std::vector<Collective>& calls() const noexcept { return calls_; }

    /// Returns the hub of that name for a subgroup of `size` ranks; the first caller creates it.
    [[nodiscard]] std::shared_ptr<ThreadHub> subgroup_hub(std::string_view name, int size);

    /// Records that this rank makes no further calls.
    void leave(int rank) noexcept;

    DPTK_INLINE void wake() noexcept override;

  private:
    enum class Waiting { may_fail, must_end };

    struct Part {
        std::shared_ptr<ThreadHub> hub;
        int taken = 0;
    };

    /// Executes a barrier. With Waiting::may_fail, throws if a rank is lost before all have arrived.
    void pass(int rank, Waiting waiting);

    [[nodiscard]] bool is_lost() const { return broken_ || left_ >= 0 || job_state_->failed(); }

    [[noreturn]] void throw_lost(int rank) const;

    /// Largest number of yields before sleeping: a short barrier ends while yielding, whereas a condition variable
    /// costs tens of microseconds.
    static constexpr int yields = 64;

    const int size_;
    const std::shared_ptr<JobState> job_state_;
    const std::shared_ptr<ThreadMailbox> mailbox_;
    std::mutex mutex_;
    std::condition_variable changed_;
    std::vector<Collective> calls_;
    std::map<std::string, Part, std::less<>> parts_;
    int arrived_ = 0;
    std::atomic<std::uint64_t> phase_ = 0;
    int left_ = -1;
    bool broken_ = false;
    std::atomic<bool> spoiled_ = false;
};

}  // namespace DPTK_NAMESPACE::detail

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/comm/thread/hub.ipp"
#endif
