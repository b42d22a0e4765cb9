/// Started operations of one engine that progress, or are executed, only while the caller waits. The
/// operations are kept alive until they have ended, even if the caller drops their Work.
#pragma once

#include <chrono>
#include <cstddef>
#include <exception>
#include <functional>
#include <memory>
#include <vector>

#include "dptk/comm/collective.hpp"
#include "dptk/comm/detail/work_error.hpp"
#include "dptk/comm/work.hpp"
#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE::detail {

/// A deferred operation. No background thread may execute it, so it is executed when the caller waits for it
/// without a timeout, after all operations that were deferred earlier. Polling does not execute it.
class DeferredWork final : public WorkState {
  public:
    /// `check` is called at each poll. It throws if the job has failed or the caller has polled for too long.
    DeferredWork(std::function<void()> operation, std::function<void()> check,
                 std::shared_ptr<DeferredWork> before);

    /// Destroys the operations that were deferred earlier one by one, without recursion.
    DPTK_INLINE ~DeferredWork() override;

    /// Executes the operation if `timeout` is the longest possible one. Otherwise returns whether the
    /// operation has been executed.
    DPTK_INLINE bool wait(std::chrono::nanoseconds timeout) override;

    [[nodiscard]] bool ended() override { return is_executed(); }

    std::exception_ptr error() override { return error_.see(); }

    std::exception_ptr unreported_error() override { return error_.unseen(); }

    [[nodiscard]] bool is_executed() const noexcept { return operation_ == nullptr; }

  private:
    void execute();

    std::function<void()> operation_;
    std::function<void()> check_;
    std::shared_ptr<DeferredWork> before_;
    WorkError error_;
};

class StartedCalls {
  public:
    /// Adds a call that progresses while the caller waits.
    void add(const Collective& call, std::shared_ptr<WorkState> work, std::shared_ptr<const void> keep_alive);

    /// Adds a message that progresses while the caller waits.
    void add(std::shared_ptr<WorkState> work, std::shared_ptr<const void> keep_alive);

    /// Adds a call that `operation` executes when the caller waits for the call. The call is executed after
    /// started calls that use the same memory. For `check`, see DeferredWork.
    [[nodiscard]] std::shared_ptr<WorkState> defer(const Collective& call, std::function<void()> operation,
                                                   std::function<void()> check,
                                                   std::shared_ptr<const void> keep_alive);

    /// Returns whether a deferred call has not been executed yet.
    [[nodiscard]] bool has_deferred() const;

    /// Completes the operations that must end before `call`: deferred calls, and calls that use the same
    /// memory. Before a barrier, also completes all started calls and the messages whose Work was dropped,
    /// and throws the first error of an operation whose Work was dropped.
    void finish_before(const Collective& call) {
        if (!started_.all.empty() || !deferred_.empty() || !messages_.all.empty()) [[unlikely]]
            finish_some_before(call);
    }

    /// Completes all operations when the engine closes. Throws the first error that was not reported.
    void finish_all();

    /// Waits until all operations have ended. Called after a failure of the job that ends the operations.
    void await_end();

    /// Leaks the operations that cannot be stopped, together with their memory.
    void abandon();

  private:
    struct Started {
        Collective call;
        std::shared_ptr<WorkState> work;
        std::shared_ptr<const void> keep_alive;

        void finish() const;
    };

    /// Calls of one kind. Those that have ended are dropped when their number has doubled since the last
    /// time, so that each call is tested a few times only.
    struct Calls {
        std::vector<Started> all;
        std::size_t next_drop = 16;

        void add(Started started);
        void drop_ended();
    };

    void finish_some_before(const Collective& call);

    static void rethrow_unseen(const std::vector<Started>& ended);

    void finish_deferred();

    static void take_dropped(std::vector<Started>& from, std::vector<Started>& dropped);

    Calls started_;
    std::vector<Started> deferred_;
    Calls messages_;
    std::shared_ptr<DeferredWork> last_deferred_;
};

}  // namespace DPTK_NAMESPACE::detail

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/comm/engine/started_calls.ipp"
#endif
