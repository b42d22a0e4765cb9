/// ncclGroupStart and ncclGroupEnd.
#pragma once

#include "dptk/comm/nccl_types.hpp"

namespace dptk::detail {

/// Calls of NCCL's that belong together. NCCL wants the end of the group even where one of them has failed.
class NcclGroup {
  public:
    NcclGroup() : begun_(ncclGroupStart()) {}
    ~NcclGroup() {
        if (begun_ == ncclSuccess) static_cast<void>(ncclGroupEnd());
    }
    NcclGroup(const NcclGroup&) = delete;
    NcclGroup& operator=(const NcclGroup&) = delete;

    [[nodiscard]] bool has_begun() const noexcept { return begun_ == ncclSuccess; }

    void add(ncclResult_t result) noexcept {
        if (result == ncclInProgress) in_progress_ = true;
        if (result != ncclSuccess && result != ncclInProgress && first_ == ncclSuccess) first_ = result;
    }

    /// The first failure of a call of the group, or else what the group as a whole has come to.
    [[nodiscard]] ncclResult_t end() noexcept {
        if (begun_ != ncclSuccess) return begun_;
        begun_ = ncclInProgress;  // over
        const ncclResult_t result = ncclGroupEnd();
        if (first_ != ncclSuccess) return first_;
        return result == ncclSuccess && in_progress_ ? ncclInProgress : result;
    }

  private:
    ncclResult_t begun_;
    ncclResult_t first_ = ncclSuccess;
    bool in_progress_ = false;
};

}  // namespace dptk::detail
