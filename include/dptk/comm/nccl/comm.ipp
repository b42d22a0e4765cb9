#pragma once

#include "dptk/comm/nccl/comm.hpp"

#include "dptk/comm/detail/backoff.hpp"
#include "dptk/comm/nccl/may_hang_call.hpp"
#include "dptk/control/process/deadline.hpp"
#include "dptk/core/detail/algorithms.hpp"

namespace DPTK_NAMESPACE::detail {

DPTK_INLINE std::shared_ptr<NcclComm> NcclComm::connect(NcclCommOptions options, const ncclUniqueId& id) {
    std::shared_ptr<NcclComm> comm(new NcclComm(std::move(options), nullptr, NcclOwner::dptk));
    comm->options_.job_state->subscribe(comm);
    comm->launch("ncclCommInitRankConfig", [&](ncclComm_t) { return comm->start_connecting(id); });
    return comm;
}

DPTK_INLINE std::vector<std::shared_ptr<NcclComm>> NcclComm::connect(const std::vector<NcclCommOptions>& each,
                                                                     const ncclUniqueId& id) {
    std::vector<std::shared_ptr<NcclComm>> comms;
    std::vector<std::shared_ptr<NcclHandle>> handles;
    for (const NcclCommOptions& options : each) {
        comms.emplace_back(new NcclComm(options, nullptr, NcclOwner::dptk));
        handles.push_back(comms.back()->handle_);
    }
    const auto abort = std::make_shared<NcclAbort>(std::move(handles));
    for (const auto& comm : comms) {
        comm->abort_ = abort;
        comm->job_state()->subscribe(comm);
    }
    launch_together("ncclCommInitRankConfig", comms, [&](std::size_t i, ncclComm_t, NcclGroup& group) {
        group.add(comms[i]->start_connecting(id));
    });
    return comms;
}

DPTK_INLINE std::shared_ptr<NcclComm> NcclComm::wrap(ncclComm_t raw, NcclCommOptions options,
                                                     NcclOwner owner) {
    std::shared_ptr<NcclComm> comm(new NcclComm(std::move(options), raw, owner));
    comm->options_.job_state->subscribe(comm);
    return comm;
}

DPTK_INLINE NcclComm::~NcclComm() {
    if (owner_ == NcclOwner::caller || closed_) return;
    wake();
    wait_for_abort();
}

DPTK_INLINE void NcclComm::close_together(const std::vector<std::shared_ptr<NcclComm>>& comms) {
    const bool is_healthy = detail::none_of(comms, [](const auto& comm) { return comm->failed(); });
    if (is_healthy) {
        launch_together("ncclCommFinalize", comms, [](std::size_t, ncclComm_t comm, NcclGroup& group) {
            group.add(ncclCommFinalize(comm));
        });
    }
    for (const auto& comm : comms) {
        if (is_healthy) comm->destroy();
        if (!is_healthy) comm->close();
    }
}

DPTK_INLINE bool NcclComm::failed() {
    if (failed_ || job_state()->failed()) return true;
    {
        const std::unique_lock lock(handle_->mutex, std::try_to_lock);
        if (!lock || handle_->comm == nullptr) return false;
        const ncclResult_t state = query_state();
        if (state == ncclSuccess || state == ncclInProgress) return false;
        set_failure(failure_of("asynchronous NCCL error", state));
    }
    job_state()->fail(failure_text());
    return true;
}

DPTK_INLINE std::exception_ptr NcclComm::failure() {
    try {
        check_not_failed();
    } catch (...) {
        return std::current_exception();
    }
    return nullptr;
}

DPTK_INLINE void NcclComm::rethrow_failure() {
    if (!failed_) return;
    const std::lock_guard lock(failure_mutex_);
    std::rethrow_exception(failure_);
}

DPTK_INLINE void NcclComm::set_failure(std::exception_ptr failure) {
    const std::lock_guard lock(failure_mutex_);
    if (failed_) return;
    failure_ = std::move(failure);
    failed_ = true;
}

DPTK_INLINE void NcclComm::wake() noexcept {
    if (owner_ == NcclOwner::dptk) abort_->start();
}

DPTK_INLINE void NcclComm::give_up_on(const char* what) {
    break_job_on_error([&] { throw timeout_error(what); });
}

DPTK_INLINE void NcclComm::close() {
    if (owner_ == NcclOwner::caller || closed_) return;
    if (failed_ || job_state()->failed()) {
        wake();
        return wait_for_abort();
    }
    break_job_on_error([&] { close_with_others(); });
}

DPTK_INLINE NcclComm::NcclComm(NcclCommOptions options, ncclComm_t raw, NcclOwner owner)
    : options_(std::move(options)), owner_(owner) {
    handle_->comm = raw;
    handle_->device = options_.device;
    handle_->job_rank = options_.job_rank;
}

DPTK_INLINE ncclResult_t NcclComm::start_connecting(const ncclUniqueId& id) {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    const ncclResult_t result = ncclCommInitRankConfig(&handle_->connecting, size(), id, rank(), &config);
    handle_->comm = __atomic_load_n(&handle_->connecting, __ATOMIC_ACQUIRE);
    return result;
}

DPTK_INLINE void NcclComm::check_not_failed() {
    // Read before this rank's error, which is always stored before it fails the job.
    const bool job_has_failed = job_state()->failed();
    rethrow_failure();
    if (job_has_failed) job_state()->check();
}

DPTK_INLINE void NcclComm::check_alive() {
    check_not_failed();
    if (handle_->ended) throw BackendError(text("rank ", job_rank(), ": this NCCL communicator has ended"));
}

DPTK_INLINE void NcclComm::close_with_others() {
    deregister_all();
    launch("ncclCommFinalize", [](ncclComm_t comm) { return ncclCommFinalize(comm); });
    destroy();
}

DPTK_INLINE void NcclComm::destroy() {
    closed_ = true;
    const auto result = std::make_shared<std::atomic<ncclResult_t>>(ncclInProgress);
    const auto destruction = MayHangCall::start(
        text("rank ", job_rank(), ": ncclCommDestroy"), {device()}, timeout(), [handle = handle_, result] {
            ncclComm_t comm = handle->take();
            if (comm != nullptr) static_cast<void>(cudaSetDevice(handle->device));
            *result = comm == nullptr ? ncclSuccess : ncclCommDestroy(comm);
            handle->free_unused();
        });
    if (destruction->wait() && *result != ncclSuccess && *result != ncclInProgress)
        std::rethrow_exception(failure_of("ncclCommDestroy", *result));
}

DPTK_INLINE void NcclComm::deregister_all() {
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 19, 0)
    launch("ncclCommDeregister", [&](ncclComm_t comm) {
        ncclResult_t first = ncclSuccess;
        std::erase_if(handle_->registered, [&](const auto& memory) {
            const ncclResult_t result = ncclCommDeregister(comm, memory.second);
            if (first == ncclSuccess) first = result;
            return result == ncclSuccess;
        });
        return first;
    });
#endif
}

DPTK_INLINE ncclResult_t NcclComm::query_state() const {
    ncclResult_t state = ncclSuccess;
    const ncclResult_t result = ncclCommGetAsyncError(handle_->comm, &state);
    return result == ncclSuccess ? state : result;
}

DPTK_INLINE void NcclComm::wait_until_accepted(const char* what, ncclResult_t result) {
    const Deadline deadline(timeout());
    Backoff pause;
    while (result == ncclInProgress) {
        check_not_failed();
        if (deadline.passed()) throw timeout_error(what);
        pause();
        result = query_state();
    }
    if (result == ncclSuccess) return;
    const std::exception_ptr failure = failure_of(what, result);
    if (result != ncclInvalidArgument) set_failure(failure);
    std::rethrow_exception(failure);
}

DPTK_INLINE TimeoutError NcclComm::timeout_error(const char* what) const {
    return TimeoutError(
        text("rank ", job_rank(), ": ", what, " has not completed within ", duration_text(timeout())));
}

DPTK_INLINE std::exception_ptr NcclComm::failure_of(const char* what, ncclResult_t result) const {
    std::string message = text("rank ", options_.job_rank, ": ", what, ": ", ncclGetErrorString(result));
    const char* more = ncclGetLastError(handle_->comm);
    if (more != nullptr && *more != '\0') message += text(": ", more);
    while (message.ends_with('\n')) message.pop_back();
    if (result == ncclInvalidArgument) return std::make_exception_ptr(ArgumentError(message));
    if (result == ncclRemoteError) return std::make_exception_ptr(PeerLostError(message));
    return std::make_exception_ptr(BackendError(message));
}

DPTK_INLINE std::string NcclComm::failure_text() {
    try {
        rethrow_failure();
    } catch (const std::exception& error) {
        return error.what();
    }
    return {};
}

}  // namespace DPTK_NAMESPACE::detail
