#pragma once

#include "dptk/control/launch/launcher.hpp"

#include <charconv>
#include <cstdlib>
#include <optional>
#include <string>
#include <system_error>

#include "dptk/core/detail/text.hpp"
#include "dptk/core/error.hpp"

namespace DPTK_NAMESPACE::detail {

/// The largest number of ranks that is no obvious mistake: ranks keep a few words about each other rank.
inline constexpr int max_world_size = 1'000'000;

[[nodiscard]] DPTK_INLINE int integer_from_environment(const char* variable, std::string_view value,
                                                       int minimum) {
    int number = 0;
    const auto [end, status] = std::from_chars(value.data(), value.data() + value.size(), number);
    if (status != std::errc{} || end != value.data() + value.size() || number < minimum) {
        throw ArgumentError(
            text("invalid ", variable, "='", value, "': expected an integer of at least ", minimum));
    }
    return number;
}

[[nodiscard]] DPTK_INLINE std::optional<LaunchEnvironment> read_launcher(const LauncherVariables& variables) {
    const char* rank = std::getenv(variables.rank);
    const char* size = std::getenv(variables.size);
    if (rank == nullptr || size == nullptr) return std::nullopt;
    LaunchEnvironment found;
    found.launcher = variables.launcher;
    found.world_size = integer_from_environment(variables.size, size, 1);
    found.rank = integer_from_environment(variables.rank, rank, 0);
    if (found.world_size > max_world_size)
        throw ArgumentError(
            text("invalid ", variables.size, "='", size, "': expected at most ", max_world_size, " ranks"));
    found.source =
        text(variables.name, " (", variables.rank, "=", rank, ", ", variables.size, "=", size, ")");
    if (found.rank >= found.world_size) {
        throw ArgumentError(
            text(found.source, ": expected a rank in [0, ", found.world_size - 1, "], got ", found.rank));
    }
    return found;
}

/// Throws ArgumentError if only one of RANK and WORLD_SIZE is set, unless it agrees with the variables of
/// another launcher.
DPTK_INLINE void check_both_are_set(const LaunchEnvironment& chosen) {
    const char* rank = std::getenv("RANK");
    const char* size = std::getenv("WORLD_SIZE");
    if ((rank == nullptr) == (size == nullptr)) return;
    const char* const name = rank != nullptr ? "RANK" : "WORLD_SIZE";
    const std::string setting = text(name, '=', rank != nullptr ? rank : size);
    if (chosen.launcher == Launcher::none) {
        throw ArgumentError(text(setting, " is set, but ", rank != nullptr ? "WORLD_SIZE" : "RANK",
                                 " is not: set both, or unset ", name));
    }
    const int expected = rank != nullptr ? chosen.rank : chosen.world_size;
    if (setting != text(name, '=', expected))
        throw ArgumentError(text(setting, " contradicts ", chosen.source, ": unset ", name));
}

}  // namespace DPTK_NAMESPACE::detail

namespace DPTK_NAMESPACE {

DPTK_INLINE LaunchEnvironment read_launch_environment() {
    LaunchEnvironment chosen;
    for (const detail::LauncherVariables& variables : detail::launcher_variables) {
        const std::optional<LaunchEnvironment> found = detail::read_launcher(variables);
        if (!found) continue;
        // If srun starts torchrun, the ranks are those of torchrun.
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
                                             found->source, "; unset the variables that are stale"));
        }
    }
    detail::check_both_are_set(chosen);
    return chosen;
}

}  // namespace DPTK_NAMESPACE
