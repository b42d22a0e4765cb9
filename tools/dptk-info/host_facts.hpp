// Describes this host: system, CPU cores, memory, and the limits that apply to this process.
#pragma once

#include "facts.hpp"

namespace info {

[[nodiscard]] HostFacts find_host_facts();

}  // namespace info
