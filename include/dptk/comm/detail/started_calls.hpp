/// Operations of one channel that go on, or are carried out, when somebody waits for them. They are kept here
/// until they have ended, also where nobody else keeps their Work.
#pragma once

#include <chrono>
#include <exception>
#include <functional>
#include <memory>
#include <vector>

#include "dptk/comm/collective.hpp"
#include "dptk/comm/detail/work_error.hpp"
#include "dptk/comm/work.hpp"
#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE::detail {

/// An operation that is carried out, behind those deferred before it, when somebody waits for it or asks
/// whether it is done: there is no thread that could do so meanwhile.
class DeferredWork final : public WorkState {
  public:
    DeferredWork(std::function<void()> operation, std::shared_ptr<DeferredWork> before);

    DPTK_INLINE bool wait(std::chrono::nanoseconds) override;

    std::exception_ptr error() override { return error_.see(); }

    std::exception_ptr unseen_error() override { return error_.unseen(); }

    [[nodiscard]] bool carried_out() const noexcept { return operation_ == nullptr; }

  private:
    std::function<void()> operation_;
    std::shared_ptr<DeferredWork> before_;
    WorkError error_;
};

class StartedCalls {
  public:
    /// A call that goes on while somebody waits.
    void add(const Collective& call, std::shared_ptr<WorkState> work, std::shared_ptr<const void> keep_alive);

    /// A message that does so.
    void add(std::shared_ptr<WorkState> work, std::shared_ptr<const void> keep_alive);

    /// A call that `operation` carries out when somebody waits for it, behind those that work in its memory.
    [[nodiscard]] std::shared_ptr<WorkState> defer(const Collective& call, std::function<void()> operation,
                                                   std::shared_ptr<const void> keep_alive);

    /// Whether a call waits to be carried out.
    [[nodiscard]] bool has_deferred() const;

    /// Before a call: those that were deferred, and those that work in the same memory. Before a barrier all,
    /// and the messages whose Work nobody keeps; throws the first error of a Work that nobody keeps.
    void finish_before(const Collective& call);

    /// When the channel closes: all of them.
    void finish_all();

    /// In a job that has failed, where that ends what is under way: none uses its memory any more.
    void await_end();

    /// Keeps what cannot be stopped, and its memory, for ever.
    void abandon();

  private:
    struct Started {
        Collective call;
        std::shared_ptr<WorkState> work;
        std::shared_ptr<const void> keep_alive;

        void finish() const;
    };

    static void drop_ended(std::vector<Started>& calls);

    static void rethrow_unseen(const std::vector<Started>& ended);

    void finish_deferred();

    static void take_dropped(std::vector<Started>& from, std::vector<Started>& dropped);

    std::vector<Started> started_;
    std::vector<Started> deferred_;
    std::vector<Started> messages_;
    std::shared_ptr<DeferredWork> last_deferred_;
};

}  // namespace DPTK_NAMESPACE::detail

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/comm/detail/started_calls.ipp"
#endif
