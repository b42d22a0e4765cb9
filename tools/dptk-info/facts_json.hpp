// JSON serialization of the facts: for the exchange between ranks, and for --json.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "facts.hpp"

namespace info {

/// Converts one rank's facts to a line of JSON, and back. Fields that are missing, because the rank runs
/// another version of dptk-info, keep their default values.
[[nodiscard]] std::string text_from(const RankFacts& facts);
[[nodiscard]] RankFacts rank_facts_from(std::string_view text);

/// The whole report as a JSON object.
[[nodiscard]] std::string text_from(const JobFacts& facts, const std::vector<std::string>& remarks);

}  // namespace info
