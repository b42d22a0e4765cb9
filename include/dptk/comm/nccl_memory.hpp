/// Device memory of NCCL's calls: that which one call needs for a moment, and that which NCCL has allocated
/// and registered, so that it reaches it without a copy.
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>

#include "dptk/comm/nccl_comm.hpp"
#include "dptk/comm/nccl_types.hpp"
#include "dptk/core/buffer.hpp"
#include "dptk/core/cuda/device.hpp"
#include "dptk/core/cuda/error.hpp"
#include "dptk/core/stream_ref.hpp"

namespace dptk::detail {

/// Allocated and freed in a stream's order: it may be dropped as soon as the stream has been given what uses
/// it. None of it blocks.
class StreamMemory {
  public:
    StreamMemory(std::size_t bytes, StreamRef stream) : stream_(stream) {
        cuda::check(cudaMallocAsync(&data_, std::max<std::size_t>(bytes, 1), stream.get()),
                    "cudaMallocAsync");
    }
    ~StreamMemory() { static_cast<void>(cudaFreeAsync(data_, stream_.get())); }
    StreamMemory(const StreamMemory&) = delete;
    StreamMemory& operator=(const StreamMemory&) = delete;

    [[nodiscard]] void* data(std::size_t offset = 0) const noexcept {
        return static_cast<std::byte*>(data_) + offset;
    }

    /// A buffer like that one, here.
    [[nodiscard]] Buffer like(const Buffer& other, int device) const noexcept {
        Buffer here = other.at(data_);
        here.device = {DeviceType::cuda, device};
        return here;
    }

  private:
    void* data_ = nullptr;
    StreamRef stream_;
};

/// Zeroed, on the communicator's device. It is registered as long as the communicator is open. Collective.
[[nodiscard]] inline std::shared_ptr<void> allocate_by_nccl(const std::shared_ptr<NcclComm>& comm,
                                                            std::size_t bytes) {
    const std::size_t size = std::max<std::size_t>(bytes, 1);
    void* memory = nullptr;
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 19, 0)
    if (const ncclResult_t result = ncclMemAlloc(&memory, size); result != ncclSuccess)
        throw BackendError(text("rank ", comm->job_rank(), ": ncclMemAlloc of ", size,
                                " bytes: ", ncclGetErrorString(result)));
    const std::shared_ptr<void> owned(memory, [device = comm->device()](void* data) {
        if (!cuda::detail::is_stuck(device)) static_cast<void>(ncclMemFree(data));
    });
    cuda::check(cudaMemset(memory, 0, size), "cudaMemset");
    cuda::check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    comm->register_memory(memory, size);
    return {memory, [owned, comm](void* data) { comm->deregister_memory(data); }};
#else
    cuda::check(cudaMalloc(&memory, size), "cudaMalloc");
    const std::shared_ptr<void> owned(memory, [device = comm->device()](void* data) {
        if (!cuda::detail::is_stuck(device)) static_cast<void>(cudaFree(data));
    });
    cuda::check(cudaMemset(memory, 0, size), "cudaMemset");
    cuda::check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    return owned;
#endif
}

}  // namespace dptk::detail
