/// ncclGroupStart and ncclGroupEnd.
#pragma once

#include "dptk/comm/nccl/types.hpp"
#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE::detail {

/// Calls of NCCL's that belong together. NCCL wants the end of the group even where one of them has failed.
class NcclGroup {
  public:
    NcclGroup() : begun_(ncclGroupStart()) {}
    ~NcclGroup();
    NcclGroup(const NcclGroup&) = delete;
    NcclGroup& operator=(const NcclGroup&) = delete;

    [[nodiscard]] bool has_begun() const noexcept { return begun_ == ncclSuccess; }

    void add(ncclResult_t result) noexcept;

    /// The first failure of a call of the group, or else what the group as a whole has come to.
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
