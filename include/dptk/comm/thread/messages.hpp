/// The mailbox of thread ranks: sends and receives find each other by rank and tag, in the order in which
/// they were posted, and whoever comes second copies.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "dptk/comm/collective.hpp"
#include "dptk/comm/work.hpp"
#include "dptk/control/health/job_state.hpp"
#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE::detail {

class ThreadMailbox final : public FailureListener, public std::enable_shared_from_this<ThreadMailbox> {
  public:
    ThreadMailbox(int size, std::shared_ptr<JobState> job_state);

    /// Posts a message of `rank`; it goes on by itself. The mailbox must be owned by a shared_ptr. Throws
    /// where the job has failed: the memory of messages that others have posted may be gone.
    [[nodiscard]] std::shared_ptr<WorkState> post(int rank, const Message& message);

    /// Takes a message back, unless it is copied already. From then on nobody touches its memory.
    void withdraw(WorkState& work);

    /// This rank will not come again.
    void leave(int rank) noexcept;

    /// Where the job has failed, nobody takes a message any more.
    DPTK_INLINE void wake() noexcept override;

  private:
    enum class Stage : std::uint8_t { waiting, copying, done };

    class Posted final : public WorkState {
      public:
        Posted(std::shared_ptr<ThreadMailbox> mailbox, int rank_, const Message& message_);

        bool wait(std::chrono::nanoseconds timeout) override { return mailbox_->wait(*this, timeout); }

        DPTK_INLINE std::exception_ptr error() override;

        DPTK_INLINE std::exception_ptr unseen_error() override;

        [[nodiscard]] int source_rank() const override { return message.verb == Verb::recv ? peer : -1; }

        const int rank;
        const Message message;
        int peer;
        Stage stage = Stage::waiting;
        std::string mismatch;
        bool lost = false;

      private:
        /// Made by the thread that asks: ranks share no exception objects.
        [[nodiscard]] std::exception_ptr make_error() const;

        std::shared_ptr<ThreadMailbox> mailbox_;
        bool seen_ = false;
    };

    [[nodiscard]] static bool fit(const Posted& a, const Posted& b) noexcept;

    [[nodiscard]] static std::string copy(const Posted& from, Posted& to);

    bool wait(Posted& posted, std::chrono::nanoseconds timeout);

    /// Ends a message that waits.
    void give_up(Posted& posted);

    [[nodiscard]] bool is_lost(const Posted& posted) const;

    [[nodiscard]] std::exception_ptr why_lost(const Posted& posted) const;

    const std::shared_ptr<JobState> job_state_;
    std::mutex mutex_;
    std::condition_variable changed_;
    std::list<std::shared_ptr<Posted>> sends_;
    std::list<std::shared_ptr<Posted>> receives_;
    std::vector<bool> left_;
};

}  // namespace DPTK_NAMESPACE::detail

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/comm/thread/messages.ipp"
#endif
