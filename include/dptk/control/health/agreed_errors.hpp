/// Decides whether an exception fails the job: an agreed error, which all ranks throw together, does not; an
/// error that this rank throws alone does. A destructor cannot see the exception that unwinds it, but it
/// can see whether the last agreed error still exists. Each rank has one AgreedErrors object, which a group
/// shares with its duplicates.
#pragma once

#include <exception>
#include <memory>
#include <mutex>
#include <string_view>

#include "dptk/control/health/job_state.hpp"
#include "dptk/core/config.hpp"
#include "dptk/core/detail/text.hpp"
#include "dptk/core/error.hpp"

namespace DPTK_NAMESPACE::detail {

class AgreedErrors {
  public:
    /// Records an error that all ranks throw, for as long as the error object exists.
    void note(const Error& error);

    /// Returns whether the last agreed error has not yet been caught and destroyed.
    [[nodiscard]] bool is_unwinding() const;

  private:
    mutable std::mutex mutex_;
    std::weak_ptr<const void> last_;
};

/// Runs `fn`. An exception that is not agreed breaks the job; an agreed error is recorded. Rethrows both.
template <class Fn>
void break_job_unless_agreed(JobState& job_state, AgreedErrors& agreed_errors, int rank, Fn&& fn) {
    const auto fail = [&](std::string_view what) { job_state.fail(text("rank ", rank, ": ", what)); };
    try {
        fn();
    } catch (const Error& error) {
        if (error.agreed()) {
            agreed_errors.note(error);
        } else {
            fail(error.what());
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

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/control/health/agreed_errors.ipp"
#endif
