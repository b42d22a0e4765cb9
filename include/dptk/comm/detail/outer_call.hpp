/// The call that a transport executes with calls of another transport. The other transport's errors name this
/// call and its ranks, instead of calls that the program has not made.
#pragma once

#include <span>

#include "dptk/comm/collective.hpp"
#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE::detail {

struct OuterCall {
    const Collective& call;
    /// The ranks of the call's group that are the ranks of the other transport's group.
    std::span<const int> ranks;
};

/// The outer call of the calling thread, or null.
inline thread_local const OuterCall* outer_call = nullptr;

/// Sets the outer call during this object's lifetime.
class OuterCallScope {
  public:
    explicit OuterCallScope(const OuterCall& call) noexcept : before_(outer_call) { outer_call = &call; }
    ~OuterCallScope() { outer_call = before_; }
    OuterCallScope(const OuterCallScope&) = delete;
    OuterCallScope& operator=(const OuterCallScope&) = delete;

  private:
    const OuterCall* before_;
};

}  // namespace DPTK_NAMESPACE::detail
