/// Carrying calls out on a transport, with all that is said and checked about them.
#pragma once

#include <chrono>
#include <exception>
#include <functional>
#include <memory>

#include "dptk/comm/algorithms/run.hpp"
#include "dptk/comm/detail/active_call.hpp"
#include "dptk/comm/detail/call_checker.hpp"
#include "dptk/comm/detail/channel.hpp"
#include "dptk/comm/transport.hpp"
#include "dptk/control/health/agreed_errors.hpp"
#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE::detail {

/// Returns the rank from which the message came, or to which it went.
template <Transport T>
int transfer(T& transport, const Message& message) {
    if constexpr (HasTransfer<T>) return transport.transfer(message);
    if (message.verb == Verb::send) {
        transport.send(message.buffer, message.peer, message.tag);
        return message.peer;
    }
    if constexpr (HasRecvAny<T>) {
        if (message.peer == any_rank) return transport.recv_any(message.buffer, message.tag);
    }
    transport.recv(message.buffer, message.peer, message.tag);
    return message.peer;
}

/// What carries calls out, on whatever thread. Operations own it: a channel that is abandoned goes before
/// they end.
template <Transport T>
struct Carrier {
    std::shared_ptr<T> transport;
    ChannelJob job;
    std::shared_ptr<CallTracker> activity;
    /// Null unless DPTK_DEBUG asks for it.
    std::shared_ptr<CallChecker> checker;

    void run(const Collective& call, AllReduceAlgorithm algorithm) const {
        if constexpr (HasPrepare<T>) {
            run(call, algorithm, transport->prepare(call));
        } else {
            run(call, algorithm, [&] { algorithms::run(*transport, call, algorithm); });
        }
    }

    /// What run(call, algorithm) will do on another thread.
    [[nodiscard]] std::function<void()> prepare(const Collective& call, AllReduceAlgorithm algorithm) const {
        if constexpr (HasPrepare<T>) return transport->prepare(call);
        return [on = transport, call, algorithm] { algorithms::run(*on, call, algorithm); };
    }

    template <class Operation>
    void run(const Collective& call, AllReduceAlgorithm algorithm, Operation&& operation) const {
        const ActiveCall active(*activity, call);
        if (checker) checker->check(call, algorithm);
        operation();
    }

    /// The same on the program's own thread.
    void run_on_caller(const Collective& call, AllReduceAlgorithm algorithm) const {
        if (!checker) return run(call, algorithm);
        checker->promise();
        const WaitingCaller::Here here(checker->caller(), checker->channel());
        run(call, algorithm);
    }

    /// The same in the transport's background form, where it has one: MPI does not match a verb's two forms
    /// with each other.
    void run_as_started(const Collective& call) const {
        const ActiveCall active(*activity, call);
        const std::shared_ptr<WorkState> work = transport->start(call);
        if (!work) return prepare(call, AllReduceAlgorithm::automatic)();
        work->wait(std::chrono::nanoseconds::max());
        if (const std::exception_ptr error = work->error()) std::rethrow_exception(error);
    }

    /// Makes one of the collectives that have a result of their own.
    template <class Make>
    auto make(const Collective& call, Make&& make_result) const {
        const ActiveCall active(*activity, call);
        if (checker) {
            checker->promise();
            const WaitingCaller::Here here(checker->caller(), checker->channel());
            checker->check(call, AllReduceAlgorithm::automatic);
        }
        return make_result();
    }

    int run(const Message& message, CallTracker& messages) const {
        const ActiveCall active(messages, message);
        return transfer(*transport, message);
    }

    /// Throws what has failed here, which tells more than that the job has, or else that.
    void check_well() const {
        const JobState& job_state = *job.control->job_state();
        const bool job_has_failed = job_state.failed();  // after what has failed here was noted
        if constexpr (HasRethrow<T>) transport->rethrow_failure();
        if (job_has_failed) job_state.check();
    }

    /// Runs something on the transport; an error that is not agreed between the ranks breaks the job.
    template <class Operation>
    void abort_job_on_error(Operation&& operation) const {
        break_job_unless_agreed(job, operation);
    }
};

}  // namespace DPTK_NAMESPACE::detail
