/// An NCCL communicator with deadlines. It works in NCCL's non-blocking mode, the only one that can be
/// aborted safely: each call is asked after until NCCL has taken it in, and no other call is made until then.
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

/// Who ends an ncclComm_t.
enum class NcclOwner : std::uint8_t {
    caller,  ///< it is left as it is, also where the job fails: what it carries out then goes on
    dptk,    ///< it is closed with its transport, and aborted where the job fails
};

namespace detail {

struct NcclCommOptions {
    int rank = 0;
    int size = 1;
    /// As messages call it.
    int job_rank = 0;
    /// The CUDA device on which it works.
    int device = 0;
    /// Of each call, until NCCL has taken it in.
    std::chrono::milliseconds timeout = default_timeout;
    std::shared_ptr<JobState> job_state;
};

class NcclComm final : public FailureListener {
  public:
    /// Connects with the other ranks that have the same id. Blocks until all have come.
    [[nodiscard]] static std::shared_ptr<NcclComm> connect(NcclCommOptions options, const ncclUniqueId& id);

    /// The same for several devices of this process at once, a rank each.
    [[nodiscard]] static std::vector<std::shared_ptr<NcclComm>> connect(
        const std::vector<NcclCommOptions>& each, const ncclUniqueId& id);

    /// Around one that is there.
    [[nodiscard]] static std::shared_ptr<NcclComm> around(ncclComm_t raw, NcclCommOptions options,
                                                          NcclOwner owner);

    /// Aborts what has not been closed.
    DPTK_INLINE ~NcclComm() override;
    NcclComm(const NcclComm&) = delete;
    NcclComm& operator=(const NcclComm&) = delete;

    [[nodiscard]] int rank() const noexcept { return options_.rank; }
    [[nodiscard]] int size() const noexcept { return options_.size; }
    [[nodiscard]] int job_rank() const noexcept { return options_.job_rank; }
    [[nodiscard]] int device() const noexcept { return options_.device; }
    [[nodiscard]] std::chrono::milliseconds timeout() const noexcept { return options_.timeout; }
    [[nodiscard]] const std::shared_ptr<JobState>& job_state() const noexcept { return options_.job_state; }

    /// calls(ncclComm_t) makes calls of NCCL's, and returns what they have come to. Blocks until NCCL has
    /// taken them in: then the streams have them. Throws what keeps it from that: ArgumentError,
    /// BackendError, PeerLostError or, at the deadline, TimeoutError.
    template <class Calls>
    void launch(const char* what, Calls&& calls) {
        check_well();
        break_job_on_error([&] {
            const cuda::DeviceScope on(device());
            const std::lock_guard lock(handle_->mutex);
            check_alive();
            settle(what, calls(handle_->comm));
        });
    }

    /// The same for several calls that belong together: calls(ncclComm_t, NcclGroup&).
    template <class Calls>
    void launch_group(const char* what, Calls&& calls) {
        launch(what, [&](ncclComm_t comm) {
            NcclGroup group;
            if (group.has_begun()) calls(comm, group);
            return group.end();
        });
    }

    /// The same for several communicators of this thread's: calls(number, ncclComm_t, NcclGroup&) for each,
    /// with its device as the current one.
    template <class Calls>
    static void launch_together(const char* what, const std::vector<std::shared_ptr<NcclComm>>& comms,
                                Calls&& calls) {
        for (const auto& comm : comms) comm->check_well();
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
            for (const auto& comm : comms) comm->settle(what, result);
        });
    }

    /// Ends them together with the other ranks'. In a job that has failed, aborts them.
    static void close_together(const std::vector<std::shared_ptr<NcclComm>>& comms);

#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 19, 0)
    /// Of all ranks or of none. Memory of ncclMemAlloc's.
    void register_memory(void* data, std::size_t bytes) {
        launch("ncclCommRegister", [&](ncclComm_t comm) {
            void*& handle = handle_->registered[data];
            handle_->unused.reserve(handle_->registered.size());
            const ncclResult_t result = ncclCommRegister(comm, data, bytes, &handle);
            if (result != ncclSuccess && result != ncclInProgress) handle_->registered.erase(data);
            return result;
        });
    }

    /// Nobody uses the memory any more. Returns whether it may be freed at once; where NCCL goes on to know
    /// it, it is freed with the communicator's end.
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

    /// Whether what was handed over will not come to a good end. Asks NCCL, where nobody is inside.
    [[nodiscard]] bool failed();

    /// What it has failed with: the error of this rank where it has one, or the job's.
    [[nodiscard]] std::exception_ptr failure();

    void rethrow_failure();

    /// Something that it works with has failed.
    void note(std::exception_ptr failure);

    /// The job has failed. On whatever thread, perhaps one that is inside launch(): does not wait.
    DPTK_INLINE void wake() noexcept override;

    /// In a job that has failed: blocks until nothing that was handed over goes on, for at most some seconds.
    void await_abort() noexcept { abort_->wait(); }

    /// Whether nothing goes on any more, in a job that has failed; or nobody can do anything about it.
    [[nodiscard]] bool is_over() { return owner_ == NcclOwner::caller || abort_->is_over(); }

    /// Ends the job, since `what` has taken longer than it may. Throws TimeoutError.
    void give_up_on(const char* what);

    /// Ends it together with the other ranks. Blocks until they have come, and all that was handed over is
    /// done. In a job that has failed, aborts it.
    void close();

  private:
    NcclComm(NcclCommOptions options, ncclComm_t raw, NcclOwner owner);

    /// In the non-blocking mode.
    [[nodiscard]] ncclResult_t begin_connecting(const ncclUniqueId& id);

    /// Throws what has failed here, or else in the job.
    void check_well();

    /// Under the lock: an abort may have been here before.
    void check_alive();

    /// Where NCCL has not taken in what it was given, nobody may use its streams before it has been aborted.
    template <class Function>
    void break_job_on_error(Function&& function) {
        const auto break_job = [&](std::string cause, Failure kind) {
            if (!cause.starts_with("rank ")) cause = text("rank ", job_rank(), ": ", cause);
            job_state()->fail(std::move(cause), kind);
            wake();
            await_abort();
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

    /// Behind its finalization.
    void destroy();

    void deregister_all();

    /// What NCCL says of the communicator. Under the lock.
    [[nodiscard]] ncclResult_t look() const;

    /// Until NCCL has taken in what was called. Under the lock: nobody else makes a call meanwhile.
    void settle(const char* what, ncclResult_t result);

    [[nodiscard]] TimeoutError late(const char* what) const;

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
