/// Executes calls on a transport, and tracks and checks them.
#pragma once

#include <chrono>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include "dptk/comm/algorithms/run.hpp"
#include "dptk/comm/call_wait.hpp"
#include "dptk/comm/detail/active_call.hpp"
#include "dptk/comm/detail/call_context.hpp"
#include "dptk/comm/detail/transport_members.hpp"
#include "dptk/comm/transport.hpp"
#include "dptk/core/config.hpp"
#include "dptk/core/detail/error_access.hpp"

namespace DPTK_NAMESPACE::detail {

/// Sends or receives a message. Blocks. Returns the source rank of a receive, or the destination of a send.
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

/// Calls `operation`, in which transport T may wait for other ranks. If T has no control plane of its own, a
/// PeerLostError is replaced by the first cause, which other ranks have reported to the control plane. An
/// error of a T that a failure of the job does not interrupt, such as MPI, is replaced if rank 0 finds the
/// cause.
template <Transport T, class Operation>
[[gnu::always_inline]] inline decltype(auto) in_transport(const ChannelJob& job, Operation&& operation) {
    if constexpr (HasControl<T> && !Interruptible<T>) {
        try {
            return operation();
        } catch (const BackendError&) {
            job.control->throw_verdict();
            throw;
        }
    } else {
        JobState& job_state = *job.control->job_state();
        const CallWaits waits(job_state);
        if constexpr (HasControl<T>) {
            return operation();
        } else {
            return job.control->has_store() ? with_first_cause(job_state, operation) : operation();
        }
    }
}

/// Executes a channel's calls, on any thread.
template <Transport T>
struct CallExecutor final : CallContext {
    CallExecutor(std::shared_ptr<T> of_calls, const ChannelJob& of_job, std::shared_ptr<CallTracker> of_group)
        : CallContext(of_job, std::move(of_group)), transport(std::move(of_calls)) {}

    std::shared_ptr<T> transport;

    // The functions that lead from a blocking call to the transport's verb are always inlined, here, in
    // call_context.hpp, in channel_job.hpp and in algorithms/run.hpp. This makes the overhead of a call a
    // third smaller (bench/mpi_overhead.cpp).

    [[gnu::always_inline]] void run(const Collective& call, AllReduceAlgorithm algorithm) const {
        if constexpr (HasPrepare<T>) {
            run(call, algorithm, transport->prepare(call));
        } else {
            run(call, algorithm,
                [&] { in_transport<T>(job, [&] { algorithms::run(*transport, call, algorithm); }); });
        }
    }

    /// Returns a function that carries out the call later, possibly on another thread; null if the function
    /// is carry_out().
    [[nodiscard]] std::function<void()> prepare(const Collective& call) const {
        if constexpr (HasPrepare<T>) return transport->prepare(call);
        return nullptr;
    }

    void carry_out(const Collective& call, AllReduceAlgorithm algorithm) const override {
        if constexpr (HasPrepare<T>) return transport->prepare(call)();
        in_transport<T>(job, [&] { algorithms::run_out_of_line(*transport, call, algorithm); });
    }

    using CallContext::run;

    /// Executes the call on the program's own thread.
    [[gnu::always_inline]] void run_on_caller(const Collective& call, AllReduceAlgorithm algorithm) const {
        std::optional<CallerState::WaitScope> here;
        if (checker) [[unlikely]] {
            checker->announce();
            here.emplace(checker->caller(), checker->channel());
        }
        run(call, algorithm);
    }

    /// Executes the call in the transport's non-blocking form, if there is one for this call, and waits until
    /// the call has ended: MPI does not match a blocking collective with a non-blocking one.
    void run_nonblocking(const Collective& call) const {
        ActiveCall(*tracker, call).run([&] {
            const std::shared_ptr<WorkState> work = transport->start(call);
            if (!work) return carry_out(call, AllReduceAlgorithm::automatic);
            work->wait(std::chrono::nanoseconds::max());
            if (const std::exception_ptr error = work->error()) std::rethrow_exception(error);
        });
    }

    /// Executes a collective that returns an object (a communicator, memory), and returns that object.
    template <class Make>
    auto make(const Collective& call, Make&& make_result) const {
        const ActiveCall active(*tracker, call);
        return active.run([&] {
            if (checker) {
                checker->announce();
                const CallerState::WaitScope here(checker->caller(), checker->channel());
                checker->check(call, AllReduceAlgorithm::automatic);
            }
            return in_transport<T>(job, make_result);
        });
    }

    int run(const Message& message, CallTracker& messages) const {
        const ActiveCall active(messages, message);
        return in_transport<T>(job, [&] { return transfer(*transport, message); });
    }

    void throw_if_failed() const override {
        const JobState& job_state = *job.control->job_state();
        // Read before the transport's failure, which is always recorded before it fails the job.
        const bool job_has_failed = job_state.failed();
        try {
            if constexpr (HasRethrow<T>) transport->rethrow_failure();
            if (job_has_failed) job_state.check();
        } catch (const Error& error) {
            ErrorAccess::add_rank(error, job.control->rank());
            throw;
        }
    }
};

}  // namespace DPTK_NAMESPACE::detail
