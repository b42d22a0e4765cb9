/// The background work of which MPI keeps the requests.
#pragma once

#include <chrono>
#include <cstddef>
#include <exception>
#include <functional>
#include <vector>

#include "dptk/comm/detail/work_error.hpp"
#include "dptk/comm/mpi/environment.hpp"
#include "dptk/comm/work.hpp"
#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE::detail {

/// What MPI has been given and whoever waits for it progresses.
class MpiWork final : public WorkState {
  public:
    MpiWork();
    DPTK_INLINE ~MpiWork() override;
    MpiWork(const MpiWork&) = delete;
    MpiWork& operator=(const MpiWork&) = delete;

    std::vector<MPI_Request> requests;
    /// Called when all has ended well; may throw.
    std::function<void(const MPI_Status& last)> finish = {};
    /// Of a recv.
    int source = -1;

    /// One after the other: Open MPI 4.1's MPI_Waitall does not return where one has failed before the call.
    DPTK_INLINE bool wait(std::chrono::nanoseconds timeout) override;

    std::exception_ptr error() override { return error_.see(); }

    std::exception_ptr unseen_error() override { return error_.unseen(); }

    [[nodiscard]] int source_rank() const override { return source; }

  private:
    void check_message(int result) const;

    void end() noexcept;

    MPI_Status last_ = {};
    std::size_t waited_for_ = 0;
    bool ended_ = false;
    WorkError error_;
};

}  // namespace DPTK_NAMESPACE::detail

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/comm/mpi/work.ipp"
#endif
