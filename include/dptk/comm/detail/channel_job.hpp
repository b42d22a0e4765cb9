/// ChannelJob: what all channels of one rank in a job share.
#pragma once

#include <memory>

#include "dptk/control/health/agreed_errors.hpp"
#include "dptk/control/health/control_plane.hpp"
#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE::detail {

/// State that all channels of a rank share.
struct ChannelJob {
    std::shared_ptr<ControlPlane> control;
    /// Distinguishes agreed errors from failures: a channel that is destroyed while an agreed error unwinds
    /// does not fail the job.
    std::shared_ptr<AgreedErrors> agreed_errors;
    /// Progress function of the job's first transport; null if that transport needs none.
    Progress progress = nullptr;
};

/// Runs `fn`. If `fn` throws an agreed error, records the error; if `fn` throws anything else, fails the job.
/// Rethrows the exception.
template <class Fn>
[[gnu::always_inline]] inline void break_job_unless_agreed(const ChannelJob& job, Fn&& fn) {
    job.agreed_errors->note_call();
    try {
        fn();
    } catch (...) {
        rethrow_after_report(*job.control->job_state(), *job.agreed_errors, job.control->rank());
    }
}

}  // namespace DPTK_NAMESPACE::detail
