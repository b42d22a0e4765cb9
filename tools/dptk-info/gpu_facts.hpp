// Queries the CUDA driver for the GPUs that are visible to this process. Creates no CUDA context, and so uses
// no GPU memory.
#pragma once

#include "facts.hpp"

namespace info {

[[nodiscard]] GpuFacts find_gpu_facts();

}  // namespace info
