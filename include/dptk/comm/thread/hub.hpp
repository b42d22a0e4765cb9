/// The meeting place of thread ranks: each posts its call, sees everybody's, and leaves when all have
/// finished. A rank that fails or goes away ends the others' waits.
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

    /// A hub that is woken by its job's failure.
    [[nodiscard]] static std::shared_ptr<ThreadHub> make(int size,
                                                         const std::shared_ptr<JobState>& job_state);

    [[nodiscard]] int size() const noexcept { return size_; }
    [[nodiscard]] ThreadMailbox& mailbox() noexcept { return *mailbox_; }

    /// Posts this rank's call and waits for all others'. From its return until finish(), calls() may be read,
    /// and the memory that they name may be used as the ranks have agreed. Throws PeerLostError when a rank
    /// is lost.
    void meet(int rank, const Collective& call);

    /// Waits until all ranks are done with each other's memory. Nobody waits for anything between meet and
    /// finish, so this ends even where the job has failed meanwhile: no rank goes while another touches its
    /// memory.
    void finish() { pass(Waiting::must_end); }

    /// This rank has not done its part of the call. Before finish().
    void spoil() noexcept { spoiled_ = true; }

    /// After finish(): throws PeerLostError where another rank has not done its part.
    void check_complete() const;

    /// Everybody's calls, by rank.
    [[nodiscard]] const std::vector<Collective>& calls() const noexcept { return calls_; }

    /// The hub of that name for `size` of the ranks: the first of them to come makes it.
    [[nodiscard]] std::shared_ptr<ThreadHub> part(std::string_view name, int size);

    /// This rank will not come again.
    void leave(int rank) noexcept;

    DPTK_INLINE void wake() noexcept override;

  private:
    enum class Waiting { may_fail, must_end };

    struct Part {
        std::shared_ptr<ThreadHub> hub;
        int taken = 0;
    };

    /// A barrier. With Waiting::may_fail it throws when a rank is lost before all are here.
    void pass(Waiting waiting);

    [[nodiscard]] bool is_lost() const { return dead_ || left_ >= 0 || job_state_->failed(); }

    [[noreturn]] void throw_lost() const;

    /// Short meetings end while yielding; a condition variable costs tens of microseconds.
    static constexpr int spins = 64;

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
    bool dead_ = false;
    std::atomic<bool> spoiled_ = false;
};

}  // namespace DPTK_NAMESPACE::detail

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/comm/thread/hub.ipp"
#endif
