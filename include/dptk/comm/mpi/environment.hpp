/// MPI as this process has it: initialised by us only if nobody has, finalised by who did, and ended by
/// MPI_Abort where a rank has failed, since a collective that others wait in cannot be cancelled.
#pragma once

#if !__has_include(<mpi.h>)
#error \
    "dptk/comm/mpi.hpp needs MPI: compile with mpicxx, or link MPI::MPI_CXX (Debian: libopenmpi-dev or libmpich-dev)."
#endif

// The C++ bindings left MPI in its version 3.0; they cost compile time and warn.
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
#include "dptk/control/store/store.hpp"
#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE {

/// Throws BackendError with MPI's own words where `status` is not MPI_SUCCESS.
void check_mpi(int status, std::string_view call);

class DPTK_EXPORT MpiEnvironment {
  public:
    /// The one of this process. The first call initialises MPI with MPI_THREAD_MULTIPLE, unless the program
    /// has done so; the program's end then finalises it. Call it from the main thread first.
    [[nodiscard]] static MpiEnvironment& get() {
        static_cast<void>(
            detail::ProgramEnd::get());  // and its stores: they close after the other ranks have ended, too
        static MpiEnvironment& environment =
            *new MpiEnvironment;  // statics of the program may outlive this one
        static const AtProgramEnd at_program_end{environment};
        return environment;
    }

    MpiEnvironment(const MpiEnvironment&) = delete;
    MpiEnvironment& operator=(const MpiEnvironment&) = delete;

    /// Whether any thread may call MPI at any time. Otherwise no thread of dptk's calls MPI.
    [[nodiscard]] bool allows_threads() const noexcept { return thread_level_ == MPI_THREAD_MULTIPLE; }

    /// Whether the calling thread may call MPI.
    [[nodiscard]] bool callable_from_this_thread() const noexcept;

    /// This process's rank in MPI_COMM_WORLD.
    [[nodiscard]] int rank() const noexcept { return rank_; }

    /// Shared by all groups over MPI in this process.
    [[nodiscard]] const std::shared_ptr<detail::JobState>& job_state() const noexcept { return job_state_; }

    [[nodiscard]] static bool is_finalized() noexcept;

    /// The linked library in one line: "Open MPI v4.1.4".
    [[nodiscard]] static std::string library();

    /// Communicators report their lives, so that the end of the program knows of those that were never
    /// closed.
    void communicator_opened() noexcept { ++open_communicators_; }
    void communicator_closed() noexcept { --open_communicators_; }

    /// So does what MPI goes on with only while somebody calls it.
    void work_started() noexcept { ++works_; }
    void work_ended() noexcept { --works_; }
    [[nodiscard]] bool has_work() const noexcept { return works_ > 0; }

    /// How long the end of the program waits for the other ranks' at most.
    void set_timeout(std::chrono::milliseconds timeout) noexcept { timeout_ = timeout; }

    /// Says why, and ends all ranks by MPI_Abort; where this thread may not call MPI, this process, which
    /// makes the launcher end the others.
    void end_job(const std::string& message) const noexcept;

    /// The same for a job that has failed.
    void end_job() const noexcept;

  private:
    MpiEnvironment();

    struct AtProgramEnd {
        MpiEnvironment& environment;
        ~AtProgramEnd();
    };

    void end_program();

    /// Waits for ranks that go on after this one has closed its groups: the job may still fail, and then must
    /// not be ended while this one waits in MPI_Finalize (Open MPI's mpirun may hang then).
    void end_failed_job() const;

    /// Runs at the start of MPI_Finalize, whoever calls it: MPI deletes the attributes of MPI_COMM_SELF
    /// first.
    static int before_finalize(MPI_Comm, int, void* environment, void*);

    /// An uncaught exception unwinds nothing, so nobody else can end the job for the ranks that wait.
    class Terminator final : public detail::TerminateListener {
      public:
        explicit Terminator(const MpiEnvironment& environment) : environment_(environment) {}

        [[nodiscard]] int rank() const noexcept override { return environment_.rank_; }

        DPTK_INLINE void on_terminate(const std::string& message) noexcept override;

      private:
        const MpiEnvironment& environment_;
    };

    void abort() const noexcept {
        static std::atomic<bool> ending = false;
        if (ending.exchange(true))
            std::this_thread::sleep_for(std::chrono::minutes(1));  // another thread does it
        std::fflush(stdout);
        // mpirun forwards output on its own time, and drops what it has not read yet when a job aborts.
        std::this_thread::sleep_for(std::chrono::milliseconds(300));
        if (callable_from_this_thread()) {
            // Where the launcher cannot be reached any more, MPI_Abort may wait for it.
            std::thread([] {
                std::this_thread::sleep_for(std::chrono::seconds(2));
                std::_Exit(EXIT_FAILURE);
            }).detach();
            MPI_Abort(MPI_COMM_WORLD, EXIT_FAILURE);
        }
        std::_Exit(EXIT_FAILURE);  // the launcher ends the other ranks
    }

    /// MPI_Finalize would wait in silence for a rank that waits in a collective for this one. Ends the job
    /// where this rank left a group open, by exit(), and the others do not arrive.
    void wait_for_all_ranks() const;

    /// How long exit() with an open group waits for the other ranks to end, too.
    static constexpr std::chrono::seconds grace{15};
    /// How long the program's end waits without a word.
    static constexpr std::chrono::seconds patience{60};

    bool host_ = false;
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
