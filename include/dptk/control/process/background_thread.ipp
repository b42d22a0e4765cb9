#pragma once

#include "dptk/control/process/background_thread.hpp"

#include <pthread.h>

namespace DPTK_NAMESPACE::detail {

DPTK_INLINE AllSignalsBlocked::AllSignalsBlocked() {
    sigset_t all;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &before_);
}

DPTK_INLINE AllSignalsBlocked::~AllSignalsBlocked() {
    ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

}  // namespace DPTK_NAMESPACE::detail
