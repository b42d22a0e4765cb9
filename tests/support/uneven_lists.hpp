// Lists of different lengths, which ranks send to each other.
#pragma once

#include <cstddef>
#include <numeric>
#include <vector>

namespace test {

/// Returns the numbers that rank `from` sends to rank `to` in round `round`: of different lengths, also none.
inline std::vector<double> list_of(int from, int to, int round) {
    std::vector<double> out(static_cast<std::size_t>((3 * from + 5 * to + 7 * round) % 11) * 37);
    std::iota(out.begin(), out.end(), 1000.0 * from + 100 * to + round);
    return out;
}

}  // namespace test
