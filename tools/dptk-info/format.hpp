// Formats numbers, byte counts, times and lists of ranks for people.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace info {

/// "4 B", "64 MiB", "23.5 GiB".
[[nodiscard]] std::string bytes_text(std::uint64_t bytes);

/// "1.20 us", "33.0 ms".
[[nodiscard]] std::string seconds_text(double seconds);

/// "1.21 GB/s"; units are powers of ten.
[[nodiscard]] std::string rate_text(double bytes_per_second);

/// At most two digits after the point, without trailing zeros: "2", "1.5", "1.32".
[[nodiscard]] std::string number_text(double number);

/// Always two digits after the point: "1.00".
[[nodiscard]] std::string ratio_text(double ratio);

/// Ascending numbers, with consecutive ones written as ranges: "0-3,8". "none" for an empty list.
[[nodiscard]] std::string list_text(const std::vector<int>& numbers);

}  // namespace info
