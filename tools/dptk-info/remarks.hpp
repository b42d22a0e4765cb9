// What looks wrong, judged from the facts alone: no remark is a guess.
#pragma once

#include <string>
#include <vector>

#include "facts.hpp"

namespace info {

/// One sentence each: what was found, where, and what to do about it.
[[nodiscard]] std::vector<std::string> find_remarks(const JobFacts& job);

}  // namespace info
