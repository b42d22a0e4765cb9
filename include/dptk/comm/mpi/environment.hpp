/// MPI's initialization, thread level and finalization in this process. dptk initializes and finalizes MPI
/// only if the program does not. If a rank has failed, dptk calls MPI_Abort, since a collective in which
/// other ranks wait cannot be canceled.
#pragma once

#if !__has_include(<mpi.h>)
#error \
    "dptk/comm/mpi.hpp needs MPI: compile with mpicxx, or link MPI::MPI_CXX (Debian: libopenmpi-dev or libmpich-dev)."
#endif

// MPI 3.0 removed the C++ bindings; they cost compile time and cause warnings.
#ifndef OMPI_SKIP_MPICXX
#define OMPI_SKIP_MPICXX 1
#endif
#ifndef MPICH_SKIP_MPICXX
#define MPICH_SKIP_MPICXX 1
#endif
#include <mpi.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>
#include <thread>

#include "dptk/control/health/job_state.hpp"
#include "dptk/control/health/program_end.hpp"
#include "dptk/control/health/terminate.hpp"
#include "dptk/control/process/fork_guard.hpp"
#include "dptk/control/store/store.hpp"
#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE {

namespace detail {

[[noreturn]] void throw_mpi_error(int status, std::string_view call);

}  // namespace detail

/// Throws BackendError with MPI's error text if `status` is not MPI_SUCCESS.
inline void check_mpi(int status, std::string_view call) {
    if (status != MPI_SUCCESS) detail::throw_mpi_error(status, call);
}

/// MPI's state in this process.
class DPTK_EXPORT MpiEnvironment {
  public:
    /// Returns the one instance of this process. The first call initializes MPI with MPI_THREAD_MULTIPLE,
    /// unless the program has already initialized MPI. If dptk has initialized MPI, dptk finalizes MPI when
    /// the program ends. The first call must be made by the main thread.
    [[nodiscard]] static MpiEnvironment& get() {
        // Constructed first and therefore destroyed last, so that the stores that this process serves close
        // after the other ranks have ended.
        static_cast<void>(detail::ProgramEnd::get());
        // Never destroyed, because statics of the program may outlive it.
        static MpiEnvironment& environment = *new MpiEnvironment;
        static const AtProgramEnd at_program_end{environment};
        return environment;
    }

    MpiEnvironment(const MpiEnvironment&) = delete;
    MpiEnvironment& operator=(const MpiEnvironment&) = delete;

    /// Whether any thread may call MPI at any time (MPI_THREAD_MULTIPLE). If not, dptk's own threads do not
    /// call MPI.
    [[nodiscard]] bool allows_threads() const noexcept { return thread_level_ == MPI_THREAD_MULTIPLE; }

    /// Whether the calling thread may call MPI.
    [[nodiscard]] bool callable_from_this_thread() const noexcept;

    /// This process's rank in MPI_COMM_WORLD.
    [[nodiscard]] int rank() const noexcept { return rank_; }

    /// The state of the job, shared by all groups over MPI in this process.
    [[nodiscard]] const std::shared_ptr<detail::JobState>& job_state() const noexcept { return job_state_; }

    [[nodiscard]] static bool is_finalized() noexcept;

    /// The name and version of the linked library, such as "Open MPI v4.1.4".
    [[nodiscard]] static std::string library();

    /// Count open communicators, so that the program's end detects communicators that were never closed.
    void communicator_opened() noexcept { ++open_communicators_; }
    void communicator_closed() noexcept { --open_communicators_; }

    /// Count nonblocking operations, which MPI progresses only during calls into MPI.
    void work_started() noexcept { ++works_; }
    void work_ended() noexcept { --works_; }
    [[nodiscard]] bool has_work() const noexcept { return works_ > 0; }

    /// Sets the maximum time for which the program's end waits for the other ranks.
    void set_timeout(std::chrono::milliseconds timeout) noexcept { timeout_ = timeout; }

    /// Logs the message and ends all ranks by MPI_Abort. If this thread may not call MPI, ends this process
    /// only; the launcher then ends the others.
    void end_job(const std::string& message) const noexcept;

    /// Ends a failed job. Logs the cause if the failure is local.
    void end_job() const noexcept;

  private:
    MpiEnvironment();

    struct AtProgramEnd {
        MpiEnvironment& environment;
        ~AtProgramEnd();
    };

    void end_program();

    /// Waits for ranks that are still running after this rank has closed its groups, and ends the job if the
    /// job fails meanwhile. A job must not be aborted while this rank waits in MPI_Finalize, since Open MPI's
    /// mpirun may then hang.
    void end_failed_job() const;

    /// Runs at the start of MPI_Finalize, even if the program itself calls MPI_Finalize: MPI first deletes
    /// the attributes of MPI_COMM_SELF.
    static int before_finalize(MPI_Comm, int, void* environment, void*);

    /// Ends the job on std::terminate. An uncaught exception runs no destructors, so the other ranks would
    /// wait forever.
    class Terminator final : public detail::TerminateListener {
      public:
        explicit Terminator(const MpiEnvironment& environment) : environment_(environment) {}

        [[nodiscard]] int rank() const noexcept override { return environment_.rank_; }

        [[nodiscard]] bool has_logged(const std::string& message) const noexcept override {
            return environment_.job_state_->has_logged(message);
        }

        DPTK_INLINE void on_terminate(const std::string& message) noexcept override;

      private:
        const MpiEnvironment& environment_;
    };

    void abort() const noexcept {
        static std::atomic<bool> ending = false;
        if (ending.exchange(true))
            std::this_thread::sleep_for(std::chrono::minutes(1));  // another thread aborts
        // Writing to stdout may block, and MPI_Abort may hang, if the launcher has ended.
        std::thread([] {
            std::this_thread::sleep_for(std::chrono::milliseconds(2300));
            std::_Exit(EXIT_FAILURE);
        }).detach();
        std::fflush(stdout);
        // mpirun forwards output asynchronously, and drops output that it has not read when a job aborts.
        std::this_thread::sleep_for(std::chrono::milliseconds(300));
        if (callable_from_this_thread()) MPI_Abort(MPI_COMM_WORLD, EXIT_FAILURE);
        std::_Exit(EXIT_FAILURE);  // the launcher ends the other ranks
    }

    /// Waits until all ranks have reached the end of their programs. Called before MPI_Finalize, which would
    /// hang silently if another rank waited for this rank in a collective. Aborts the job after the timeout
    /// or, if this rank called exit() while a group was open, after `grace_period`.
    void wait_for_all_ranks() const;

    /// How long exit() with an open group waits for the other ranks to end.
    static constexpr std::chrono::seconds grace_period{15};
    /// How long the program's end waits before it logs a warning.
    static constexpr std::chrono::seconds warning_delay{60};

    bool owns_mpi_ = false;
    detail::ForkGuard fork_guard_;
    int thread_level_ = MPI_THREAD_SINGLE;
    int rank_ = 0;
    int keyval_ = MPI_KEYVAL_INVALID;
    std::atomic<int> open_communicators_ = 0;
    std::atomic<int> works_ = 0;
    std::atomic<std::chrono::milliseconds> timeout_ = default_timeout;
    std::shared_ptr<detail::JobState> job_state_ = std::make_shared<detail::JobState>();
    std::shared_ptr<detail::TerminateListener> terminator_ = std::make_shared<Terminator>(*this);
};

}  // namespace DPTK_NAMESPACE

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/comm/mpi/environment.ipp"
#endif
