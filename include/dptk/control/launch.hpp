/// What the launcher (mpirun, torchrun, srun, ...) has told this process through the environment: its rank
/// and the number of ranks. Reads variables only; nothing is initialised or contacted.
#pragma once

#include <charconv>
#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>

#include "dptk/core/error.hpp"
#include "dptk/core/text.hpp"

namespace dptk {

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

[[nodiscard]] inline int integer_from_environment(const char* variable, std::string_view value, int minimum) {
    int number = 0;
    const auto [end, status] = std::from_chars(value.data(), value.data() + value.size(), number);
    if (status != std::errc{} || end != value.data() + value.size() || number < minimum) {
        throw ArgumentError(text("the environment says ", variable, "=", value,
                                 ", where an integer of at least ", minimum, " belongs"));
    }
    return number;
}

[[nodiscard]] inline std::optional<LaunchEnvironment> read_launcher(const LauncherVariables& variables) {
    const char* rank = std::getenv(variables.rank);
    const char* size = std::getenv(variables.size);
    if (rank == nullptr || size == nullptr) return std::nullopt;
    LaunchEnvironment found;
    found.launcher = variables.launcher;
    found.world_size = integer_from_environment(variables.size, size, 1);
    found.rank = integer_from_environment(variables.rank, rank, 0);
    found.source =
        text(variables.name, " (", variables.rank, "=", rank, ", ", variables.size, "=", size, ")");
    if (found.rank >= found.world_size) {
        throw ArgumentError(text(found.source, " gives a rank outside [0, ", found.world_size - 1, "]"));
    }
    return found;
}

}  // namespace detail

/// Looks for the variables of the known launchers. Those of srun are ignored below an MPI launcher, since
/// mpirun inside a SLURM allocation leaves them stale, unless they agree with PMI's: then srun has set both;
/// and below torchrun, which srun may start once per host. Any other two that disagree are an error. Throws
/// ArgumentError: a variable that is no number, a rank outside the world, two launchers that disagree.
[[nodiscard]] inline LaunchEnvironment read_launch_environment() {
    LaunchEnvironment chosen;
    for (const detail::LauncherVariables& variables : detail::launcher_variables) {
        const std::optional<LaunchEnvironment> found = detail::read_launcher(variables);
        if (!found) continue;
        // A task of srun's that runs torchrun: its ranks count anew.
        if (found->launcher == Launcher::slurm && std::getenv("TORCHELASTIC_RUN_ID") != nullptr) continue;
        if (found->launcher == Launcher::slurm && chosen.launcher == Launcher::mpi) {
            const bool agree = found->rank == chosen.rank && found->world_size == chosen.world_size;
            if (agree && std::getenv("PMI_RANK") != nullptr) chosen = *found;
            continue;
        }
        if (chosen.launcher == Launcher::none) {
            chosen = *found;
        } else if (found->rank != chosen.rank || found->world_size != chosen.world_size) {
            throw ArgumentError(detail::text("two launchers contradict each other: ", chosen.source, " and ",
                                             found->source,
                                             "; unset the variables of the one that is stale"));
        }
    }
    return chosen;
}

}  // namespace dptk
