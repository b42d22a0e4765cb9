#pragma once

#include "dptk/comm/detail/channel_base.hpp"

#include <exception>
#include <string_view>

#include "dptk/comm/detail/active_call.hpp"
#include "dptk/control/process/deadline.hpp"
#include "dptk/control/process/debug.hpp"
#include "dptk/core/detail/text.hpp"
#include "dptk/core/log.hpp"

namespace DPTK_NAMESPACE::detail {

DPTK_INLINE ChannelBase::ChannelBase(std::shared_ptr<CallContext> context,
                                     std::shared_ptr<CallerState> caller, Abilities abilities)
    : context_(std::move(context)),
      tracker_(context_->tracker.get()),
      job_state_(context_->job.control->job_state()),
      caller_(std::move(caller)),
      abilities_(abilities) {}

DPTK_INLINE void ChannelBase::open() {
    if (size() > 1 && control().has_store() && debug_level() == DebugLevel::detail)
        context_->checker = std::make_shared<CallChecker>(context_->job.control, context_->tracker, caller_,
                                                          context_->job.progress);
    // Calls on a stream have no order that the ranks share with other calls.
    if (size() > 1 && control().compares_calls() && !abilities_.enqueues) tracker().keep_history();
    control().open(context_->tracker);  // last, since close() must follow
}

DPTK_INLINE void ChannelBase::end() noexcept {
    if (fork_guard_.is_in_child()) return leak();
    const bool unwinding = std::uncaught_exceptions() > uncaught_exceptions_;
    if (unwinding && !context_->job.agreed_errors->is_unwinding())
        job_state_->fail(text("rank ", control().rank(), " left its process group because of an exception"));
    close();
}

DPTK_INLINE void ChannelBase::monitored_barrier(std::chrono::milliseconds timeout) {
    if (size() > 1 && !control().has_store()) {
        throw ArgumentError(text("rank ", rank(),
                                 ": monitored_barrier requires a control plane with a store, which the "
                                 "transport ",
                                 backend(), " does not have in this job"));
    }
    context_->throw_if_failed();
    in_order([&] {
        with_first_cause(*job_state_,
                         [&] { control().monitored_barrier(tracker(), timeout, context_->job.progress); });
    });
}

DPTK_INLINE ChannelIdentity ChannelBase::next_identity(std::span<const int> ranks,
                                                       std::optional<std::chrono::milliseconds> timeout) {
    // The subgroups that one call creates differ in their first rank, which makes their names unique. A
    // rank that is in none of these subgroups needs no name.
    const int first = ranks.empty() ? -1 : ranks.front();
    ChannelIdentity next{.name = text(identity().name, '.', tracker().next_child(), '-', first),
                         .ranks = {},
                         .timeout = timeout.value_or(identity().timeout)};
    for (const int member : ranks) next.ranks.push_back(identity().ranks[static_cast<std::size_t>(member)]);
    return next;
}

DPTK_INLINE void ChannelBase::run_with_timeout(const Collective& call) {
    control().look_often(call.timeout);
    const CallTimeout limit(tracker(), call.timeout);
    Collective without = call;
    without.timeout = {};
    run(without);
}

DPTK_INLINE void ChannelBase::check_device_memory(const Collective& call) const {
    if (takes_device_memory(call)) return;
    throw ArgumentError(text("rank ", rank(), ": ", describe(call), " on a device: ", no_devices_text()),
                        {.rank = rank()});
}

DPTK_INLINE std::string ChannelBase::no_devices_text() const {
    return "the transport " + backend() +
           " supports only host memory. For device memory, use a ProcessGroup in a program that "
           "includes <dptk/comm/nccl.hpp> or <dptk/comm/staged.hpp>";
}

DPTK_INLINE void ChannelBase::refuse_child(const Collective& call) const {
    throw ArgumentError(text(describe(call), " was called in a process that was forked from rank ", rank(),
                             ": only the rank itself may call its groups"),
                        {.rank = rank()});
}

DPTK_INLINE void ChannelBase::refuse_second_caller(const Collective& call) const {
    throw ArgumentError(text("rank ", rank(), ": ", describe(call), " was called while another thread is in ",
                             tracker().describe(tracker().look()),
                             " of the same group: call a group from one thread at a time, or give each "
                             "thread a group of its own"),
                        {.rank = rank()});
}

DPTK_INLINE bool ChannelBase::begin_message(const Message& message) {
    if (fork_guard_.is_in_child()) refuse_child({});
    context_->throw_if_failed();
    if (message.timeout.count() != 0) control().look_often(message.timeout);
    const auto refuse = [&](std::string_view why) {
        throw ArgumentError(text("rank ", rank(), ": ", pack(message).describe(), ": ", why),
                            {.rank = rank()});
    };
    const bool is_probe = message.verb == Verb::probe;
    const bool from_any = message.verb != Verb::send && message.peer == any_rank;
    if (is_probe && !can_probe()) refuse("the transport " + backend() + " has no probe");
    if (from_any && !is_probe && !abilities_.receives_from_any)
        refuse("the transport " + backend() + " has no recv_any");
    if (!from_any && (message.peer < 0 || message.peer >= size()))
        refuse(text("peer ", message.peer, " is outside [0, ", size() - 1, "]"));
    if (message.peer == rank()) refuse("a rank cannot send to or receive from itself");
    if (from_any && size() == 1) refuse("expected at least 2 ranks, got 1");
    if ((message.tag < 0 || message.tag > max_tag) && !(is_probe && message.tag == any_tag))
        refuse(text("tag ", message.tag, " is outside [0, ", max_tag, "]"));
    if (message_tracker_) return false;
    ChannelIdentity messages_identity = identity();
    messages_identity.name += "/messages";
    message_tracker_ = std::make_shared<CallTracker>(std::move(messages_identity),
                                                     CallTracker::Calls::messages, call_reader);
    control().open(message_tracker_);
    return true;
}

DPTK_INLINE void ChannelBase::finish_earlier() {
    started_.finish_before({.verb = Verb::duplicate});
    if (!queue_.idle()) queue_.start([] { return -1; })->wait(std::chrono::nanoseconds::max());
}

DPTK_INLINE std::shared_ptr<WorkState> ChannelBase::start_on_thread(const Collective& call,
                                                                    std::function<void()> prepared,
                                                                    std::shared_ptr<const void> keep_alive,
                                                                    std::function<void()> then) {
    std::shared_ptr<WorkState> work =
        queue_.start([context = context_, keep = std::move(keep_alive), then = std::move(then), call,
                      algorithm = algorithm_of(call), operation = std::move(prepared)] {
            const CallTimeout limit(*context->tracker, call.timeout);
            context->job.control->job_state()->check();
            context->abort_job_on_error([&] {
                context->run(call, algorithm, [&] {
                    if (operation) return operation();
                    context->carry_out(call, algorithm);
                });
            });
            if (then) then();
            return -1;
        });
    if (!context_->checker) return work;
    return make_pooled<CheckedWork>(std::move(work), context_->checker);
}

DPTK_INLINE std::function<void()> ChannelBase::poll_check(const Collective& call) const {
    const std::chrono::milliseconds own = call.timeout;
    return [state = job_state_, timeout = own.count() != 0 ? own : identity().timeout,
            call = PackedCall(call), rank = control().rank(),
            deadline = std::optional<Deadline>()]() mutable {
        if (!deadline) deadline.emplace(timeout);
        if (deadline->passed())
            state->fail(
                text("rank ", rank, ": ", call.describe(), " has been polled for ", duration_text(timeout),
                     ", but polling does not run it: call Work::wait() without a timeout"),
                Failure::deadline);
        state->check();
    };
}

/// Leaks what belongs to the parent process: its threads do not exist here, and its connections are in use.
DPTK_INLINE void ChannelBase::leak() noexcept {
    queue_.leak();
    keep_for_ever(std::make_shared<StartedCalls>(std::move(started_)));
    keep_transport();
    keep_for_ever(context_);
    keep_for_ever(message_tracker_);
}

DPTK_INLINE void ChannelBase::close() noexcept {
    const auto attempt = [&](auto&& step) {
        try {
            step();
        } catch (const std::exception& failure) {
            log(LogLevel::error, control().rank(), text("while a process group closed: ", failure.what()));
        } catch (...) {
            log(LogLevel::error, control().rank(),
                "while a process group closed: an exception that is not derived from std::exception");
        }
    };
    const auto leave_control = [&] {
        if (message_tracker_) control().close(message_tracker_);
        control().close(context_->tracker);
    };
    if (!job_state_->failed()) attempt([&] { started_.finish_all(); });
    if (job_state_->failed() && !abilities_.is_interruptible) {
        // Operations in flight cannot be stopped, and continue to use their memory.
        queue_.abandon();
        started_.abandon();
        return attempt(leave_control);
    }
    attempt([&] { queue_.finish(); });
    if (job_state_->failed()) attempt([&] { started_.await_end(); });
    attempt([&] { finish_enqueued(); });
    attempt([&] { close_transport(); });
    if (context_->checker && !job_state_->failed()) attempt([&] { context_->checker->leave(); });
    attempt(leave_control);
    if (!job_state_->failed()) attempt([&] { queue_.rethrow_dropped_error(); });
    attempt([&] { leave_transport(); });
}

}  // namespace DPTK_NAMESPACE::detail
