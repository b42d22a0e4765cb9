#pragma once

#include "dptk/control/health/agreed_errors.hpp"

#include "dptk/core/detail/thread_kind.hpp"

namespace DPTK_NAMESPACE::detail {

DPTK_INLINE void AgreedErrors::note(const Error& error) {
    const std::lock_guard lock(mutex_);
    last_ = error.agreement();
    has_noted_ = true;
}

DPTK_INLINE void AgreedErrors::forget_if_caught() noexcept {
    const bool is_in_handler = std::current_exception() != nullptr;  // which may rethrow the error
    if (is_background_thread || is_in_handler || std::uncaught_exceptions() > 0) return;
    const std::lock_guard lock(mutex_);
    last_.reset();
    has_noted_ = false;
}

DPTK_INLINE bool AgreedErrors::is_unwinding() const {
    const std::lock_guard lock(mutex_);
    return !last_.expired();
}

}  // namespace DPTK_NAMESPACE::detail
