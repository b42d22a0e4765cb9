#pragma once

#include "dptk/comm/detail/work_error.hpp"

namespace DPTK_NAMESPACE::detail {

DPTK_INLINE std::exception_ptr WorkError::see() noexcept {
    seen_ = seen_ || error_ != nullptr;
    return error_;
}

}  // namespace DPTK_NAMESPACE::detail
