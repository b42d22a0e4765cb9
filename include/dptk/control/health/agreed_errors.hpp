/// Tells an agreed error, which unwinds on all ranks alike and harms nobody, from one that this rank throws
/// alone. A destructor cannot see the exception that unwinds it; what it can see is whether the last agreed
/// error is still alive. One object per rank, shared by a group and its duplicates.
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
    /// Remembers an error that all ranks throw, for as long as it lives.
    void note(const Error& error);

    /// Whether the last agreed error has not been caught and dropped yet.
    [[nodiscard]] bool under_way() const;

  private:
    mutable std::mutex mutex_;
    std::weak_ptr<const void> last_;
};

/// Runs `fn`. An exception that is not agreed breaks the job; an agreed one is noted. Both are passed on.
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
        fail("an exception that is no std::exception");
        throw;
    }
}

}  // namespace DPTK_NAMESPACE::detail

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/control/health/agreed_errors.ipp"
#endif
