// Finds problems in the facts: oversubscribed cores, shared GPUs, different versions, slow ranks.
#pragma once

#include <string>
#include <vector>

#include "facts.hpp"

namespace info {

/// Returns one sentence per problem, which says what was found, where, and what to do about it.
[[nodiscard]] std::vector<std::string> find_remarks(const JobFacts& job);

}  // namespace info
