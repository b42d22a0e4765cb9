/// CallContext: what a channel's calls use, whatever the transport.
#pragma once

#include <functional>
#include <memory>

#include "dptk/comm/all_reduce_algorithm.hpp"
#include "dptk/comm/detail/active_call.hpp"
#include "dptk/comm/detail/call_checker.hpp"
#include "dptk/comm/detail/channel_job.hpp"
#include "dptk/control/health/call_tracker.hpp"
#include "dptk/control/health/job_state.hpp"
#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE::detail {

/// Tracks and checks calls, on any thread. Operations in flight share it, and may outlive the channel.
struct CallContext {
    CallContext(const ChannelJob& of_job, std::shared_ptr<CallTracker> of_calls)
        : job(of_job), tracker(std::move(of_calls)) {}
    CallContext(const CallContext&) = delete;
    CallContext& operator=(const CallContext&) = delete;
    virtual ~CallContext() = default;

    ChannelJob job;
    std::shared_ptr<CallTracker> tracker;
    /// Null unless DPTK_DEBUG=detail enables the check.
    std::shared_ptr<CallChecker> checker;

    template <class Operation>
    [[gnu::always_inline]] void run(const Collective& call, AllReduceAlgorithm algorithm,
                                    Operation&& operation) const {
        ActiveCall(*tracker, call).run([&] {
            if (checker) [[unlikely]]
                checker->check(call, algorithm);
            operation();
        });
    }

    /// Runs an operation on the transport. An error that is not agreed between the ranks fails the job.
    template <class Operation>
    void abort_job_on_error(Operation&& operation) const {
        break_job_unless_agreed(job, operation);
    }

    /// Carries out the call on the transport.
    virtual void carry_out(const Collective& call, AllReduceAlgorithm algorithm) const = 0;

    /// Throws if the transport or the job has failed. The transport's own failure takes precedence, since it
    /// is more specific.
    virtual void throw_if_failed() const = 0;
};

}  // namespace DPTK_NAMESPACE::detail
