/// Operations of one channel that go on, or are carried out, when somebody waits for them. They are kept here
/// until they have ended, also where nobody else keeps their Work.
#pragma once

#include <algorithm>
#include <chrono>
#include <exception>
#include <functional>
#include <iterator>
#include <memory>
#include <utility>
#include <vector>

#include "dptk/comm/collective.hpp"
#include "dptk/comm/work.hpp"
#include "dptk/comm/work_error.hpp"

namespace dptk::detail {

/// An operation that is carried out, behind those deferred before it, when somebody waits for it or asks
/// whether it is done: there is no thread that could do so meanwhile.
class DeferredWork final : public WorkState {
  public:
    DeferredWork(std::function<void()> operation, std::shared_ptr<DeferredWork> before)
        : operation_(std::move(operation)), before_(std::move(before)) {}

    bool wait(std::chrono::nanoseconds) override {
        if (const auto before = std::exchange(before_, nullptr))
            static_cast<void>(before->wait(std::chrono::nanoseconds::max()));
        if (const auto operation = std::exchange(operation_, nullptr)) {
            try {
                operation();
            } catch (...) {
                error_.set(std::current_exception());
            }
        }
        return true;
    }

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
    void add(const Collective& call, std::shared_ptr<WorkState> work,
             std::shared_ptr<const void> keep_alive) {
        drop_ended(started_);
        started_.push_back({call, std::move(work), std::move(keep_alive)});
    }

    /// A message that does so.
    void add(std::shared_ptr<WorkState> work, std::shared_ptr<const void> keep_alive) {
        drop_ended(messages_);
        messages_.push_back({{}, std::move(work), std::move(keep_alive)});
    }

    /// A call that `operation` carries out when somebody waits for it, behind those that work in its memory.
    [[nodiscard]] std::shared_ptr<WorkState> defer(const Collective& call, std::function<void()> operation,
                                                   std::shared_ptr<const void> keep_alive) {
        if (last_deferred_ != nullptr && !has_deferred()) {
            finish_deferred();
            drop_ended(started_);
        }
        std::vector<std::shared_ptr<WorkState>> before;
        for (const Started& started : started_) {
            if (share_memory(started.call, call)) before.push_back(started.work);
        }
        auto in_turn = [before = std::move(before), operation = std::move(operation)] {
            for (const auto& work : before) work->wait(std::chrono::nanoseconds::max());
            operation();
        };
        auto work = std::make_shared<DeferredWork>(std::move(in_turn), last_deferred_);
        last_deferred_ = work;
        deferred_.push_back({call, work, std::move(keep_alive)});
        return work;
    }

    /// Whether a call waits to be carried out.
    [[nodiscard]] bool has_deferred() const {
        return last_deferred_ != nullptr && !last_deferred_->carried_out();
    }

    /// Before a call: those that were deferred, and those that work in the same memory. Before a barrier all,
    /// and the messages whose Work nobody keeps; throws the first error of a Work that nobody keeps.
    void finish_before(const Collective& call) {
        if (started_.empty() && deferred_.empty() && messages_.empty()) return;
        finish_deferred();
        for (const Started& started : started_) {
            if (call.verb == Verb::barrier || share_memory(started.call, call)) started.finish();
        }
        if (call.verb != Verb::barrier) return;
        std::vector<Started> dropped;
        take_dropped(started_, dropped);
        take_dropped(messages_, dropped);
        for (const Started& each : dropped) each.finish();
        rethrow_unseen(dropped);
    }

    /// When the channel closes: all of them.
    void finish_all() {
        finish_deferred();
        std::vector<Started> ended = std::exchange(started_, {});
        std::ranges::move(std::exchange(messages_, {}), std::back_inserter(ended));
        for (const Started& each : ended) each.finish();
        rethrow_unseen(ended);
    }

    /// In a job that has failed, where that ends what is under way: none uses its memory any more.
    void await_end() {
        for (const std::vector<Started>* calls : {&started_, &deferred_, &messages_}) {
            for (const Started& call : *calls) call.finish();
        }
    }

    /// Keeps what cannot be stopped, and its memory, for ever.
    void abandon() {
        static_cast<void>(new std::vector<Started>(std::move(started_)));
        static_cast<void>(new std::vector<Started>(std::move(messages_)));
    }

  private:
    struct Started {
        Collective call;
        std::shared_ptr<WorkState> work;
        std::shared_ptr<const void> keep_alive;

        void finish() const { static_cast<void>(work->wait(std::chrono::nanoseconds::max())); }
    };

    static void drop_ended(std::vector<Started>& calls) {
        std::erase_if(calls,
                      [](const Started& call) { return call.work->ended() && !call.work->unseen_error(); });
    }

    static void rethrow_unseen(const std::vector<Started>& ended) {
        for (const Started& call : ended) {
            if (const std::exception_ptr error = call.work->unseen_error()) std::rethrow_exception(error);
        }
    }

    void finish_deferred() {
        for (Started& call : std::exchange(deferred_, {})) {
            call.finish();
            started_.push_back(std::move(call));
        }
        last_deferred_ = nullptr;
    }

    static void take_dropped(std::vector<Started>& from, std::vector<Started>& dropped) {
        const auto first = std::ranges::stable_partition(
            from, [](const Started& call) { return call.work.use_count() > 1; });
        std::ranges::move(first, std::back_inserter(dropped));
        from.erase(first.begin(), first.end());
    }

    std::vector<Started> started_;
    std::vector<Started> deferred_;
    std::vector<Started> messages_;
    std::shared_ptr<DeferredWork> last_deferred_;
};

}  // namespace dptk::detail
