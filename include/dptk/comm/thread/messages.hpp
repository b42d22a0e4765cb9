/// Point-to-point messages between thread ranks: sends and receives are matched by rank and tag, in the order
/// in which they were posted. The thread that completes a matching pair copies the data.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
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

    /// Posts a send or receive of `rank`, and returns the state of the operation, which completes without
    /// further calls. The mailbox must be owned by a shared_ptr. Throws if the job has failed, since the
    /// memory of messages that other ranks have posted may have been freed.
    [[nodiscard]] std::shared_ptr<WorkState> post(int rank, const Message& message);

    /// Returns the first message to `rank` that no receive waits for: see Engine::try_probe. Throws
    /// PeerLostError if none can come any more.
    [[nodiscard]] std::optional<MessageInfo> find(int rank, int from, int tag);

    /// Cancels the message unless it has been copied already. Blocks until no thread accesses the message's
    /// memory.
    void withdraw(WorkState& work);

    /// Records that this rank posts no further messages.
    void leave(int rank) noexcept;

    /// Cancels all unmatched messages if the job has failed.
    DPTK_INLINE void wake() noexcept override;

  private:
    enum class Stage : std::uint8_t { waiting, copying, done };

    class Posted final : public WorkState {
      public:
        Posted(std::shared_ptr<ThreadMailbox> mailbox, int rank_, const Message& message_);

        bool wait(std::chrono::nanoseconds timeout) override { return mailbox_->wait(*this, timeout); }

        DPTK_INLINE std::exception_ptr error() override;

        DPTK_INLINE std::exception_ptr unreported_error() override;

        [[nodiscard]] int source_rank() const override { return message.verb == Verb::recv ? peer : -1; }

        const int rank;
        const Message message;
        int peer;
        Stage stage = Stage::waiting;
        std::string mismatch;
        bool lost = false;

      private:
        /// Creates the error in the calling thread, so that ranks share no exception objects.
        [[nodiscard]] std::exception_ptr make_error() const;

        std::shared_ptr<ThreadMailbox> mailbox_;
        bool seen_ = false;
    };

    [[nodiscard]] static bool fit(const Posted& a, const Posted& b) noexcept;

    [[nodiscard]] static std::string copy(const Posted& from, Posted& to);

    bool wait(Posted& posted, std::chrono::nanoseconds timeout);

    /// Ends an unmatched message as lost.
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
