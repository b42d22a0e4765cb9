// What ranks leave behind: processes whose parents have ended. dptk-run adopts them, so that it can end them.
#pragma once

#include <sys/types.h>

#include <vector>

namespace run {

/// From now on orphans among this process's descendants become its children. Call it before the first rank is
/// started: children that are there already, such as a shell's process substitution, are left alone.
void adopt_orphans();

/// The living children of this process that are not in `known`, and were not there before adopt_orphans().
[[nodiscard]] std::vector<pid_t> find_orphans(const std::vector<pid_t>& known);

}  // namespace run
