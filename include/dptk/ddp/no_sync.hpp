/// NoSync, a scope in which gradients accumulate locally. no_sync() of DistributedDataParallel and of
/// ShardedOptimizer returns a NoSync.
#pragma once

#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE {

namespace detail {
class GradientReducer;
}  // namespace detail

/// While a NoSync exists, steps and marks do nothing, so that gradients accumulate in the program's own
/// memory. Programs get a NoSync from no_sync(). It must not outlive the object whose no_sync() returned
/// it.
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
