/// NoSync, the scope in which gradients accumulate locally: what no_sync() of DistributedDataParallel and
/// ShardedOptimizer returns.
#pragma once

#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE {

namespace detail {
class GradientReducer;
}  // namespace detail

/// Disables steps and marks while it exists, so that gradients accumulate in the program's own memory.
/// Programs get one from no_sync(); it must not outlive the object that returned it.
class NoSync {
  public:
    /// For no_sync() of dptk's own classes. Throws ArgumentError during a step.
    explicit NoSync(detail::GradientReducer& reducer);
    ~NoSync();
    NoSync(const NoSync&) = delete;
    NoSync& operator=(const NoSync&) = delete;

  private:
    detail::GradientReducer& reducer_;
};

}  // namespace DPTK_NAMESPACE

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/ddp/no_sync.ipp"
#endif
