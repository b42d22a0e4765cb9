#pragma once

#include "dptk/control/process/random_word.hpp"

#include <random>

namespace DPTK_NAMESPACE::detail {

DPTK_INLINE std::string random_word() {
    std::random_device random;
    std::string out;
    for (int digit = 0; digit < 32; ++digit) out += "0123456789abcdef"[random() % 16];
    return out;
}

}  // namespace DPTK_NAMESPACE::detail
