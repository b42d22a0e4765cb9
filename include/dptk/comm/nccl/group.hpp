/// NCCL group calls (ncclGroupStart, ncclGroupEnd) as a scope.
#pragma once

#include "dptk/comm/nccl/types.hpp"
#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE::detail {

/// A group of NCCL calls. Ends the group even if one of the calls has failed, as NCCL requires.
class NcclGroup {
  public:
    NcclGroup() : begun_(ncclGroupStart()) {}
    ~NcclGroup();
    NcclGroup(const NcclGroup&) = delete;
    NcclGroup& operator=(const NcclGroup&) = delete;

    [[nodiscard]] bool has_begun() const noexcept { return begun_ == ncclSuccess; }

    void add(ncclResult_t result) noexcept;

    /// Ends the group. Returns the error of the first call that has failed, or else the result of the group.
    [[nodiscard]] ncclResult_t end() noexcept;

  private:
    ncclResult_t begun_;
    ncclResult_t first_ = ncclSuccess;
    bool in_progress_ = false;
};

}  // namespace DPTK_NAMESPACE::detail

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/comm/nccl/group.ipp"
#endif
