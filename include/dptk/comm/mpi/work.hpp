/// Nonblocking MPI operations (MPI_Request) as background work.
#pragma once

#include <chrono>
#include <cstddef>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "dptk/comm/detail/work_error.hpp"
#include "dptk/comm/mpi/environment.hpp"
#include "dptk/comm/work.hpp"
#include "dptk/control/health/control_plane.hpp"
#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE::detail {

/// Returns the error text for a message that is longer than its receive buffer.
[[nodiscard]] std::string too_long_text(int from, int to, std::size_t expected_bytes);

/// A set of MPI requests. The thread that waits for them progresses them.
class MpiWork final : public WorkState {
  public:
    MpiWork();
    DPTK_INLINE ~MpiWork() override;
    MpiWork(const MpiWork&) = delete;
    MpiWork& operator=(const MpiWork&) = delete;

    std::vector<MPI_Request> requests;
    /// Called when all requests have completed without errors; may throw.
    std::function<void(const MPI_Status& last)> finish = {};
    /// The source rank of a recv; -1 otherwise.
    int source = -1;
    /// For a recv, this rank and the size of its buffer, for error texts; -1 and 0 otherwise.
    int receiver = -1;
    std::size_t expected_bytes = 0;

    /// For a collective: an error is replaced by that of rank 0 if the ranks' calls differ. Null otherwise.
    std::shared_ptr<ControlPlane> control = nullptr;

    /// Waits for one request after the other: Open MPI 4.1's MPI_Waitall does not return if a request has
    /// failed before the call.
    DPTK_INLINE bool wait(std::chrono::nanoseconds timeout) override;

    std::exception_ptr error() override { return error_.see(); }

    std::exception_ptr unreported_error() override { return error_.unseen(); }

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
