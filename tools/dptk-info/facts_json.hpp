// Facts as JSON: the form in which ranks tell them to each other, and of --json.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "facts.hpp"

namespace info {

/// One rank's facts as a line of JSON, and back. A rank of another version may leave some out.
[[nodiscard]] std::string text_from(const RankFacts& facts);
[[nodiscard]] RankFacts rank_facts_from(std::string_view text);

/// The whole report as a JSON object.
[[nodiscard]] std::string text_from(const JobFacts& facts, const std::vector<std::string>& remarks);

}  // namespace info
