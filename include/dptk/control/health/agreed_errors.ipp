#pragma once

#include "dptk/control/health/agreed_errors.hpp"

namespace DPTK_NAMESPACE::detail {

DPTK_INLINE void AgreedErrors::note(const Error& error) {
    const std::lock_guard lock(mutex_);
    last_ = error.agreement();
}

DPTK_INLINE bool AgreedErrors::is_unwinding() const {
    const std::lock_guard lock(mutex_);
    return !last_.expired();
}

}  // namespace DPTK_NAMESPACE::detail
