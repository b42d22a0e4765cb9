/// Launcher and SLURM detection: reads the rank and the world size from the environment variables of the
/// launcher (mpirun, torchrun, SLURM's srun, ...). Does not initialize MPI and does not communicate.
#pragma once

#include <string>
#include <string_view>

#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE {

/// The kind of launcher that started this process, according to its environment.
enum class Launcher { none, mpi, torchrun, slurm };

/// The position of this process in its job, according to the variables of a launcher.
struct LaunchEnvironment {
    Launcher launcher = Launcher::none;  ///< The launcher that set the variables.
    int rank = 0;                        ///< The rank of this process.
    int world_size = 1;                  ///< The number of processes.
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

/// The variables of the known launchers, in order of precedence. SLURM_STEP_NUM_TASKS, unlike SLURM_NTASKS,
/// is set only by srun.
inline constexpr LauncherVariables launcher_variables[] = {
    {Launcher::mpi, "Open MPI's mpirun", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
    {Launcher::mpi, "MVAPICH's mpirun", "MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE"},
    {Launcher::mpi, "MPICH's or Intel MPI's mpirun", "PMI_RANK", "PMI_SIZE"},
    {Launcher::mpi, "Flux", "FLUX_TASK_RANK", "FLUX_JOB_SIZE"},
    {Launcher::torchrun, "torchrun", "RANK", "WORLD_SIZE"},
    {Launcher::slurm, "srun", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS"},
};

}  // namespace detail

/// Reads the variables of the known launchers. Under an MPI launcher, ignores the variables of srun, because
/// mpirun inside a SLURM allocation does not update them. However, if the variables of PMI are set and agree
/// with those of srun, srun has set both and counts as the launcher. Under torchrun, which srun may start
/// once per host, also ignores the variables of srun. Throws ArgumentError if a variable is not a number, if
/// the rank is not below the world size, if the variables of two launchers disagree in any other case, or if
/// only one of RANK and WORLD_SIZE is set.
[[nodiscard]] LaunchEnvironment read_launch_environment();

}  // namespace DPTK_NAMESPACE

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/control/launch/launcher.ipp"
#endif
