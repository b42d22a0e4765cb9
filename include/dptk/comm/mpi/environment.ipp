#pragma once

#include "dptk/comm/mpi/environment.hpp"

#include <cstddef>

#include "dptk/comm/mpi/call_timer.hpp"
#include "dptk/core/error.hpp"
#include "dptk/core/log.hpp"

namespace DPTK_NAMESPACE {

DPTK_INLINE void detail::throw_mpi_error(int status, std::string_view call) {
    char buffer[MPI_MAX_ERROR_STRING];
    int length = 0;
    MPI_Error_string(status, buffer, &length);
    throw BackendError(
        detail::text(call, " failed: ", std::string_view(buffer, static_cast<std::size_t>(length))));
}

DPTK_INLINE bool MpiEnvironment::callable_from_this_thread() const noexcept {
    if (allows_threads()) return true;
    int is_main = 0;
    MPI_Is_thread_main(&is_main);
    return is_main != 0;
}

DPTK_INLINE bool MpiEnvironment::is_finalized() noexcept {
    int finalized = 0;
    MPI_Finalized(&finalized);
    return finalized != 0;
}

DPTK_INLINE std::string MpiEnvironment::library() {
    char buffer[MPI_MAX_LIBRARY_VERSION_STRING];
    int length = 0;
    MPI_Get_library_version(buffer, &length);
    std::string_view line(buffer, static_cast<std::size_t>(length));
    line = line.substr(0, line.find_first_of("\n,"));
    std::string out;
    for (const char letter : line) out += letter == '\t' ? ' ' : letter;
    return out;
}

DPTK_INLINE void MpiEnvironment::end_job(const std::string& message) const noexcept {
    log(LogLevel::error, rank_, message);
    abort();
}

DPTK_INLINE void MpiEnvironment::end_job() const noexcept {
    // Causes from other ranks were already logged when they arrived.
    if (job_state_->kind() == detail::Failure::local) return end_job("ends the job: " + job_state_->cause());
    abort();
}

DPTK_INLINE MpiEnvironment::MpiEnvironment() {
    int initialized = 0;
    MPI_Initialized(&initialized);
    if (initialized == 0) {
        const detail::MpiCallTimer timer("MPI_Init");
        check_mpi(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &thread_level_), "MPI_Init_thread");
        owns_mpi_ = true;
#ifdef MPICH_VERSION
        // If a request fails before a thread waits for it, MPICH calls the error handler of MPI_COMM_WORLD
        // instead of that of the request's communicator.
        MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
#endif
    }
    MPI_Query_thread(&thread_level_);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
    MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, &MpiEnvironment::before_finalize, &keyval_, nullptr);
    MPI_Comm_set_attr(MPI_COMM_SELF, keyval_, this);
    detail::add_terminate_listener(terminator_);
}

DPTK_INLINE MpiEnvironment::AtProgramEnd::~AtProgramEnd() {
    environment.end_program();
}

DPTK_INLINE void MpiEnvironment::end_program() {
    if (fork_guard_.is_in_child() || is_finalized()) return;
    if (!owns_mpi_) return end_failed_job();
    end_failed_job();
    wait_for_all_ranks();
    const detail::MpiCallTimer timer("MPI_Finalize");
    MPI_Finalize();
}

DPTK_INLINE void MpiEnvironment::end_failed_job() const {
    if (!job_state_->failed()) {
        const std::string failure = detail::ProgramEnd::get().wait().failure;
        if (!failure.empty()) end_job("ends the job: " + failure);
    }
    if (job_state_->failed()) end_job();
}

DPTK_INLINE int MpiEnvironment::before_finalize(MPI_Comm, int, void* environment, void*) {
    const auto& self = *static_cast<MpiEnvironment*>(environment);
    if (!self.fork_guard_.is_in_child()) self.end_failed_job();
    return MPI_SUCCESS;
}

DPTK_INLINE void MpiEnvironment::Terminator::on_terminate(const std::string& message) noexcept {
    if (is_finalized()) return;
    environment_.job_state_->fail(detail::uncaught_cause(rank(), message));
    environment_.abort();
}

DPTK_INLINE void MpiEnvironment::wait_for_all_ranks() const {
    MPI_Request request = MPI_REQUEST_NULL;
    MPI_Ibarrier(MPI_COMM_WORLD, &request);
    const auto begin = detail::AwakeClock::now();
    const auto others = [] {
        const std::string known = detail::ProgramEnd::get().not_ended();
        return known.empty() ? std::string("all other ranks") : known;
    };
    bool has_warned = false;
    int arrived = 0;
    while (MPI_Test(&request, &arrived, MPI_STATUS_IGNORE) == MPI_SUCCESS && arrived == 0) {
        detail::AwakeClock::sleep_for(std::chrono::milliseconds(1));
        const auto waited = detail::AwakeClock::now() - begin;
        if (open_communicators_ > 0 && waited > grace_period) {
            end_job(
                "ends the job: exit() was called while a process group was open, and other ranks are still "
                "running");
        }
        if (waited > timeout_.load()) {
            end_job("ends the job: the program has ended on this rank, but not on " + others() +
                    " within the timeout");
        }
        if (!has_warned && waited > warning_delay) {
            log(LogLevel::warning, rank_,
                "the program has ended on this rank, and waits for " + others() + " to end");
            has_warned = true;
        }
    }
}

}  // namespace DPTK_NAMESPACE
