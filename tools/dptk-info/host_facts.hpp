// What this machine is, and how much of it this process may use.
#pragma once

#include "facts.hpp"

namespace info {

[[nodiscard]] HostFacts find_host_facts();

}  // namespace info
