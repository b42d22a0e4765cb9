#pragma once

#include "dptk/optim/optimizer.hpp"

#include <cmath>

namespace DPTK_NAMESPACE::detail {

DPTK_INLINE void require_not_negative(std::string_view optimizer, std::string_view option, double value) {
    if (!(value >= 0) || !std::isfinite(value))
        throw ArgumentError(
            text(optimizer, ": ", option, " must be finite and not negative, but is ", value));
}

}  // namespace DPTK_NAMESPACE::detail
