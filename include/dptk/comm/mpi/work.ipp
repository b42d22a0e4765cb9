#pragma once

#include "dptk/comm/mpi/work.hpp"

#include <utility>

#include "dptk/control/process/awake_clock.hpp"

namespace DPTK_NAMESPACE::detail {

DPTK_INLINE std::string too_long_text(int from, int to, std::size_t expected_bytes) {
    return text("rank ", from, " sent rank ", to, " a message that is longer than the expected ",
                expected_bytes, " bytes");
}

DPTK_INLINE MpiWork::MpiWork() {
    MpiEnvironment::get().work_started();
}

DPTK_INLINE MpiWork::~MpiWork() {
    end();
}

DPTK_INLINE bool MpiWork::wait(std::chrono::nanoseconds timeout) {
    const bool forever = timeout == std::chrono::nanoseconds::max();
    const auto begin = forever ? AwakeClock::time_point() : AwakeClock::now();
    try {
        while (waited_for_ < requests.size()) {
            MPI_Request& request = requests[waited_for_];
            int ended = 1;
            check_message(forever ? MPI_Wait(&request, &last_) : MPI_Test(&request, &ended, &last_));
            if (ended != 0) {
                ++waited_for_;
            } else if (AwakeClock::now() - begin >= timeout) {
                return false;
            }
        }
        end();
        if (const auto action = std::exchange(finish, {})) action(last_);
    } catch (const Error& error) {
        std::exception_ptr cause = std::current_exception();
        try {
            if (control) control->throw_verdict();
        } catch (const Error&) {
            cause = std::current_exception();
        }
        const MpiEnvironment& environment = MpiEnvironment::get();
        environment.job_state()->fail(text("rank ", environment.rank(), ": ", error.what()));
        error_.set(std::move(cause));
        waited_for_ = requests.size();
        end();
    }
    return true;
}

DPTK_INLINE void MpiWork::check_message(int result) const {
    int error_class = MPI_SUCCESS;
    if (result != MPI_SUCCESS) MPI_Error_class(result, &error_class);
    if (error_class == MPI_ERR_TRUNCATE) {
        if (receiver >= 0)
            throw MismatchError(too_long_text(last_.MPI_SOURCE, receiver, expected_bytes),
                                {.rank = receiver, .peer = last_.MPI_SOURCE});
        throw MismatchError(
            "received more bytes in a collective than expected: the buffers must have equal sizes on all "
            "ranks");
    }
    check_mpi(result, "MPI_Wait");
}

DPTK_INLINE void MpiWork::end() noexcept {
    if (!std::exchange(ended_, true)) MpiEnvironment::get().work_ended();
}

}  // namespace DPTK_NAMESPACE::detail
