// The GPUs that this process sees, asked of the driver. Makes no context, and so takes no memory on them.
#pragma once

#include "facts.hpp"

namespace info {

[[nodiscard]] GpuFacts find_gpu_facts();

}  // namespace info
