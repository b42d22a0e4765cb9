#pragma once

#include "dptk/control/process/signal_stack.hpp"

#include <signal.h>

#include <array>
#include <cstddef>
#include <memory>

namespace DPTK_NAMESPACE::detail {

/// The stack of a thread, from construction to the end of the thread.
class SignalStack {
  public:
    SignalStack() {
        stack_t present{};
        if (::sigaltstack(nullptr, &present) != 0 || (present.ss_flags & SS_DISABLE) == 0) return;
        memory_ = std::make_unique<Memory>();
        stack_t own{};
        own.ss_sp = memory_->data();
        own.ss_size = memory_->size();
        ::sigaltstack(&own, nullptr);
    }
    ~SignalStack() {
        if (!memory_) return;
        stack_t none{};
        none.ss_flags = SS_DISABLE;
        ::sigaltstack(&none, nullptr);
    }
    SignalStack(const SignalStack&) = delete;
    SignalStack& operator=(const SignalStack&) = delete;

  private:
    using Memory = std::array<std::byte, 64 << 10>;  // a frame with all registers has up to 12 KiB

    std::unique_ptr<Memory> memory_;
};

DPTK_INLINE void use_signal_stack() {
    thread_local const SignalStack stack;
}

}  // namespace DPTK_NAMESPACE::detail
