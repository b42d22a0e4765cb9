/// NCCL communicator with timeouts and error propagation. Uses NCCL's non-blocking mode, since only
/// non-blocking communicators can be aborted safely: after each call, the communicator polls until NCCL has
/// accepted the call, and makes no other call meanwhile.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "dptk/comm/nccl/abort.hpp"
#include "dptk/comm/nccl/group.hpp"
#include "dptk/control/health/job_state.hpp"
#include "dptk/control/store/store.hpp"
#include "dptk/core/config.hpp"
#include "dptk/core/cuda/device.hpp"
#include "dptk/core/detail/text.hpp"
#include "dptk/core/error.hpp"

namespace DPTK_NAMESPACE {

/// The owner of an ncclComm_t: who destroys the communicator.
enum class NcclOwner : std::uint8_t {
    caller,  ///< The caller destroys the communicator, whose operations continue if the job fails.
    dptk,    ///< dptk closes the communicator with its transport, and aborts it if the job fails.
};

namespace detail {

struct NcclCommOptions {
    int rank = 0;
    int size = 1;
    /// The rank in the job, for error texts.
    int job_rank = 0;
    /// The CUDA device of the communicator.
    int device = 0;
    /// The time limit for NCCL to accept a call.
    std::chrono::milliseconds timeout = default_timeout;
    std::shared_ptr<JobState> job_state;
};

/// An ncclComm_t with timeouts. If the job fails, the communicator is aborted, unless the caller owns it.
class NcclComm final : public FailureListener {
  public:
    /// Connects to the other ranks that pass the same id. Blocks until all ranks have called connect().
    [[nodiscard]] static std::shared_ptr<NcclComm> connect(NcclCommOptions options, const ncclUniqueId& id);

    /// Connects several devices of this process at once; each device is a rank.
    [[nodiscard]] static std::vector<std::shared_ptr<NcclComm>> connect(
        const std::vector<NcclCommOptions>& each, const ncclUniqueId& id);

    /// Wraps an existing communicator.
    [[nodiscard]] static std::shared_ptr<NcclComm> wrap(ncclComm_t raw, NcclCommOptions options,
                                                        NcclOwner owner);

    /// Aborts the communicator if it was not closed, unless the caller owns it.
    DPTK_INLINE ~NcclComm() override;
    NcclComm(const NcclComm&) = delete;
    NcclComm& operator=(const NcclComm&) = delete;

    [[nodiscard]] int rank() const noexcept { return options_.rank; }
    [[nodiscard]] int size() const noexcept { return options_.size; }
    [[nodiscard]] int job_rank() const noexcept { return options_.job_rank; }
    [[nodiscard]] int device() const noexcept { return options_.device; }
    [[nodiscard]] std::chrono::milliseconds timeout() const noexcept { return options_.timeout; }
    [[nodiscard]] const std::shared_ptr<JobState>& job_state() const noexcept { return options_.job_state; }

    /// Runs calls(ncclComm_t), which makes NCCL calls and returns their result. Blocks until NCCL has
    /// accepted the calls and enqueued them on their streams. Throws ArgumentError, BackendError or
    /// PeerLostError if NCCL or the job fails, and TimeoutError at the timeout.
    template <class Calls>
    void launch(const char* what, Calls&& calls) {
        check_not_failed();
        break_job_on_error([&] {
            const cuda::DeviceScope on(device());
            const std::lock_guard lock(handle_->mutex);
            check_alive();
            wait_until_accepted(what, calls(handle_->comm));
        });
    }

    /// Runs calls(ncclComm_t, NcclGroup&) as one NCCL group.
    template <class Calls>
    void launch_group(const char* what, Calls&& calls) {
        launch(what, [&](ncclComm_t comm) {
            NcclGroup group;
            if (group.has_begun()) calls(comm, group);
            return group.end();
        });
    }

    /// Runs calls(index, ncclComm_t, NcclGroup&) for several communicators as one NCCL group, each with its
    /// device as the current one.
    template <class Calls>
    static void launch_together(const char* what, const std::vector<std::shared_ptr<NcclComm>>& comms,
                                Calls&& calls) {
        for (const auto& comm : comms) comm->check_not_failed();
        comms[0]->break_job_on_error([&] {
            std::vector<std::unique_lock<std::mutex>> locks;
            for (const auto& comm : comms) {
                locks.emplace_back(comm->handle_->mutex);
                comm->check_alive();
            }
            NcclGroup group;
            for (std::size_t i = 0; i < comms.size() && group.has_begun(); ++i) {
                const cuda::DeviceScope on(comms[i]->device());
                calls(i, comms[i]->handle_->comm, group);
            }
            const ncclResult_t result = group.end();
            for (const auto& comm : comms) comm->wait_until_accepted(what, result);
        });
    }

    /// Closes the communicators together with the other ranks. If the job has failed, aborts them instead.
    static void close_together(const std::vector<std::shared_ptr<NcclComm>>& comms);

#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 19, 0)
    /// Registers memory from ncclMemAlloc. Collective.
    void register_memory(void* data, std::size_t bytes) {
        launch("ncclCommRegister", [&](ncclComm_t comm) {
            void*& handle = handle_->registered[data];
            handle_->unused.reserve(handle_->registered.size());
            const ncclResult_t result = ncclCommRegister(comm, data, bytes, &handle);
            if (result != ncclSuccess && result != ncclInProgress) handle_->registered.erase(data);
            return result;
        });
    }

    /// Deregisters memory that is no longer used. Returns whether the caller may free the memory now. Memory
    /// that NCCL cannot deregister is freed when the communicator ends.
    [[nodiscard]] bool deregister_memory(void* data) noexcept {
        const std::lock_guard lock(handle_->mutex);
        const auto found = handle_->registered.find(data);
        if (found == handle_->registered.end()) return true;
        if (handle_->comm != nullptr && ncclCommDeregister(handle_->comm, found->second) == ncclSuccess) {
            handle_->registered.erase(found);
            return true;
        }
        handle_->unused.push_back(data);
        return false;
    }
#endif

    /// Whether the communicator or the job has failed, so that enqueued operations will not complete. Queries
    /// NCCL, unless another thread is in a call on this communicator.
    [[nodiscard]] bool failed();

    /// Returns the error of this rank, or else the error of the job; null if neither has failed.
    [[nodiscard]] std::exception_ptr failure();

    /// Throws the error of this rank, if there is one.
    void rethrow_failure();

    /// Stores the error of this rank, unless an earlier error is already stored.
    void set_failure(std::exception_ptr failure);

    /// Called when the job has failed, on any thread, possibly one that is inside launch(): starts the abort,
    /// unless the caller owns the communicator. Does not block.
    DPTK_INLINE void wake() noexcept override;

    /// After a failure, blocks until the communicator is aborted, for at most a few seconds.
    void wait_for_abort() noexcept { abort_->wait(); }

    /// After a failure: whether the communicator is aborted, or will never be.
    [[nodiscard]] bool is_over() { return owner_ == NcclOwner::caller || abort_->is_over(); }

    /// Fails the job because `what` has exceeded the timeout. Throws TimeoutError.
    void give_up_on(const char* what);

    /// Closes the communicator together with the other ranks. Blocks until all ranks have called close() and
    /// all enqueued operations are done. If the job has failed, aborts the communicator instead. Does nothing
    /// if the caller owns the communicator.
    void close();

  private:
    NcclComm(NcclCommOptions options, ncclComm_t raw, NcclOwner owner);

    /// Calls ncclCommInitRankConfig in the non-blocking mode.
    [[nodiscard]] ncclResult_t start_connecting(const ncclUniqueId& id);

    /// Throws the error of this rank, or else the error of the job, if one of them has failed.
    void check_not_failed();

    /// Throws if the communicator has failed or was ended. Requires the lock.
    void check_alive();

    /// Runs the function; if it throws, fails the job and waits for the abort: if NCCL has not accepted a
    /// call, the call's streams must not be used before the abort.
    template <class Function>
    void break_job_on_error(Function&& function) {
        const auto break_job = [&](std::string cause, Failure kind) {
            if (!cause.starts_with("rank ")) cause = text("rank ", job_rank(), ": ", cause);
            job_state()->fail(std::move(cause), kind);
            wake();
            wait_for_abort();
        };
        try {
            function();
        } catch (const TimeoutError& error) {
            break_job(error.what(), Failure::deadline);
            throw;
        } catch (const std::exception& error) {
            break_job(error.what(), Failure::local);
            throw;
        }
    }

    void close_with_others();

    /// Calls ncclCommDestroy. Requires that the communicator was finalized.
    void destroy();

    void deregister_all();

    /// Returns the state that ncclCommGetAsyncError reports. Requires the lock.
    [[nodiscard]] ncclResult_t query_state() const;

    /// Polls until NCCL has accepted the call. Requires the lock, so that no other thread makes a call
    /// meanwhile.
    void wait_until_accepted(const char* what, ncclResult_t result);

    [[nodiscard]] TimeoutError timeout_error(const char* what) const;

    [[nodiscard]] std::exception_ptr failure_of(const char* what, ncclResult_t result) const;

    [[nodiscard]] std::string failure_text();

    const NcclCommOptions options_;
    const NcclOwner owner_;
    const std::shared_ptr<NcclHandle> handle_ = std::make_shared<NcclHandle>();
    std::shared_ptr<NcclAbort> abort_ = std::make_shared<NcclAbort>(std::vector{handle_});
    std::atomic<bool> failed_ = false;
    std::mutex failure_mutex_;
    std::exception_ptr failure_;
    std::atomic<bool> closed_ = false;
};

}  // namespace detail

}  // namespace DPTK_NAMESPACE

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/comm/nccl/comm.ipp"
#endif
