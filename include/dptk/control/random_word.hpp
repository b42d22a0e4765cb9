/// A word that nobody else has: for the names of runs, and for tokens.
#pragma once

#include <random>
#include <string>

namespace dptk::detail {

/// 32 hexadecimal digits from the system's source of randomness.
[[nodiscard]] inline std::string random_word() {
    std::random_device random;
    std::string out;
    for (int digit = 0; digit < 32; ++digit) out += "0123456789abcdef"[random() % 16];
    return out;
}

}  // namespace dptk::detail
