#pragma once

#include "dptk/core/error.hpp"

namespace DPTK_NAMESPACE {

DPTK_INLINE void Error::mark_agreed() {
    agreement_ = std::make_shared<char>();
}

}  // namespace DPTK_NAMESPACE
