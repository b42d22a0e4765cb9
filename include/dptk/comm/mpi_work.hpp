/// The background work of which MPI keeps the requests.
#pragma once

#include <chrono>
#include <cstddef>
#include <exception>
#include <functional>
#include <utility>
#include <vector>

#include "dptk/comm/mpi_environment.hpp"
#include "dptk/comm/work.hpp"
#include "dptk/comm/work_error.hpp"

namespace dptk::detail {

/// What MPI has been given and whoever waits for it progresses.
class MpiWork final : public WorkState {
  public:
    MpiWork() { MpiEnvironment::get().work_started(); }
    ~MpiWork() override { end(); }
    MpiWork(const MpiWork&) = delete;
    MpiWork& operator=(const MpiWork&) = delete;

    std::vector<MPI_Request> requests;
    /// Called when all has ended well; may throw.
    std::function<void(const MPI_Status& last)> finish = {};
    /// Of a recv.
    int source = -1;

    /// One after the other: Open MPI 4.1's MPI_Waitall does not return where one has failed before the call.
    bool wait(std::chrono::nanoseconds timeout) override {
        const bool forever = timeout == std::chrono::nanoseconds::max();
        const auto begin = std::chrono::steady_clock::now();
        try {
            while (waited_for_ < requests.size()) {
                MPI_Request& request = requests[waited_for_];
                int ended = 1;
                check_message(forever ? MPI_Wait(&request, &last_) : MPI_Test(&request, &ended, &last_));
                if (ended != 0) {
                    ++waited_for_;
                } else if (std::chrono::steady_clock::now() - begin >= timeout) {
                    return false;
                }
            }
            end();
            if (const auto action = std::exchange(finish, {})) action(last_);
        } catch (const Error& error) {
            MpiEnvironment::get().health()->fail(error.what());
            error_.set(std::current_exception());
            waited_for_ = requests.size();
            end();
        }
        return true;
    }

    std::exception_ptr error() override { return error_.see(); }

    std::exception_ptr unseen_error() override { return error_.unseen(); }

    [[nodiscard]] int source_rank() const override { return source; }

  private:
    void check_message(int result) const {
        int error_class = MPI_SUCCESS;
        if (result != MPI_SUCCESS) MPI_Error_class(result, &error_class);
        if (error_class == MPI_ERR_TRUNCATE) {
            throw MismatchError(
                text("rank ", last_.MPI_SOURCE, " sends more bytes than its receiver expects"));
        }
        check_mpi(result, "MPI_Wait");
    }

    void end() noexcept {
        if (!std::exchange(ended_, true)) MpiEnvironment::get().work_ended();
    }

    MPI_Status last_ = {};
    std::size_t waited_for_ = 0;
    bool ended_ = false;
    WorkError error_;
};

}  // namespace dptk::detail
