#pragma once

#include "dptk/control/health/agreed_errors.hpp"

#include <string_view>

#include "dptk/core/detail/error_access.hpp"
#include "dptk/core/detail/text.hpp"
#include "dptk/core/detail/thread_kind.hpp"

namespace DPTK_NAMESPACE::detail {

DPTK_INLINE void AgreedErrors::note(const Error& error) {
    const std::lock_guard lock(mutex_);
    last_ = ErrorAccess::lifetime(error);
    has_noted_ = true;
}

DPTK_INLINE void AgreedErrors::forget_if_caught() noexcept {
    const bool is_in_handler = std::current_exception() != nullptr;  // which may rethrow the error
    if (is_background_thread || is_in_handler || std::uncaught_exceptions() > 0) return;
    const std::lock_guard lock(mutex_);
    last_.reset();
    has_noted_ = false;
}

DPTK_INLINE bool AgreedErrors::is_unwinding() const {
    const std::lock_guard lock(mutex_);
    return !last_.expired();
}

DPTK_INLINE void rethrow_after_report(JobState& job_state, AgreedErrors& agreed_errors, int rank) {
    const auto fail = [&](std::string_view what) { job_state.fail(text("rank ", rank, ": ", what)); };
    try {
        throw;
    } catch (const Error& error) {
        ErrorAccess::add_rank(error, rank);
        if (error.agreed()) {
            agreed_errors.note(error);
        } else {
            job_state.fail(cause_of(error, rank));
            // A lost rank is what an elastic job expects.
            if (dynamic_cast<const PeerLostError*>(&error) != nullptr && job_state.is_elastic())
                job_state.check();
        }
        throw;
    } catch (const std::exception& error) {
        fail(error.what());
        throw;
    } catch (...) {
        fail("an exception that is not derived from std::exception");
        throw;
    }
}

}  // namespace DPTK_NAMESPACE::detail
