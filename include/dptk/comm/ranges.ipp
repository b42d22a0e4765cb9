#pragma once

#include "dptk/comm/ranges.hpp"

namespace DPTK_NAMESPACE::detail {

DPTK_INLINE std::shared_ptr<const void> owner_of(const std::shared_ptr<const void>& owner) {
    return owner;
}

}  // namespace DPTK_NAMESPACE::detail
