/// What the launcher (mpirun, torchrun, srun, ...) has told this process through the environment: its rank
/// and the number of ranks. Reads variables only; nothing is initialised or contacted.
#pragma once

#include <string>
#include <string_view>

#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE {

/// Who started this process, as far as its environment tells.
enum class Launcher { none, mpi, torchrun, slurm };

/// This process's place in its job, by a launcher's variables.
struct LaunchEnvironment {
    Launcher launcher = Launcher::none;  ///< Whose variables they are.
    int rank = 0;                        ///< This process's number.
    int world_size = 1;                  ///< How many processes there are.
    /// For messages: "Open MPI's mpirun (OMPI_COMM_WORLD_RANK=1, OMPI_COMM_WORLD_SIZE=4)".
    std::string source = "no launcher";
};

namespace detail {

struct LauncherVariables {
    Launcher launcher;
    std::string_view name;
    const char* rank;
    const char* size;
};

/// In order of precedence. SLURM_STEP_NUM_TASKS, unlike SLURM_NTASKS, is there only under srun.
inline constexpr LauncherVariables launcher_variables[] = {
    {Launcher::mpi, "Open MPI's mpirun", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
    {Launcher::mpi, "MVAPICH's mpirun", "MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE"},
    {Launcher::mpi, "MPICH's or Intel MPI's mpirun", "PMI_RANK", "PMI_SIZE"},
    {Launcher::mpi, "Flux", "FLUX_TASK_RANK", "FLUX_JOB_SIZE"},
    {Launcher::torchrun, "torchrun", "RANK", "WORLD_SIZE"},
    {Launcher::slurm, "srun", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS"},
};

}  // namespace detail

/// Looks for the variables of the known launchers. Those of srun are ignored below an MPI launcher, since
/// mpirun inside a SLURM allocation leaves them stale, unless they agree with PMI's: then srun has set both;
/// and below torchrun, which srun may start once per host. Any other two that disagree are an error. Throws
/// ArgumentError: a variable that is no number, a rank outside the world, two launchers that disagree.
[[nodiscard]] LaunchEnvironment read_launch_environment();

}  // namespace DPTK_NAMESPACE

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/control/launch/launch.ipp"
#include "dptk/core/error.hpp"
#endif
