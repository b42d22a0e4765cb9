// Orphans are processes that ranks have started, directly or indirectly, and whose parent has ended. dptk-run
// becomes their subreaper, and thereby their parent, so that it can end them.
#pragma once

#include <sys/types.h>

#include <vector>

namespace run {

/// Makes this process the subreaper: orphans among its descendants become its children. Call it before the
/// first rank is started, because find_orphans() ignores children that exist at the time of this call, such
/// as a shell's process substitution.
void adopt_orphans();

/// The living children of this process that are not in `known` and did not exist before adopt_orphans().
[[nodiscard]] std::vector<pid_t> find_orphans(const std::vector<pid_t>& known);

}  // namespace run
