/// Device memory of NCCL's calls: that which one call needs for a moment, and that which NCCL has allocated
/// and registered, so that it reaches it without a copy.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "dptk/comm/nccl_comm.hpp"
#include "dptk/comm/nccl_types.hpp"
#include "dptk/core/buffer.hpp"
#include "dptk/core/cuda/device.hpp"
#include "dptk/core/cuda/error.hpp"
#include "dptk/core/stream_ref.hpp"

namespace dptk::detail {

/// From which one device's StreamMemory comes. All devices of this process reach it that can: NCCL lets those
/// of one process read each other's buffers where they are.
class StreamMemoryPool {
  public:
    explicit StreamMemoryPool(int device) {
        cudaMemPoolProps properties{};
        properties.allocType = cudaMemAllocationTypePinned;
        properties.location.type = cudaMemLocationTypeDevice;
        properties.location.id = device;
        cuda::check(cudaMemPoolCreate(&pool_, &properties), "cudaMemPoolCreate");
        try {
            keep_freed_memory();
            open_to_others(device);
        } catch (...) {
            static_cast<void>(cudaMemPoolDestroy(pool_));
            throw;
        }
    }
    /// Memory that is in use stays until it is freed.
    ~StreamMemoryPool() { static_cast<void>(cudaMemPoolDestroy(pool_)); }
    StreamMemoryPool(const StreamMemoryPool&) = delete;
    StreamMemoryPool& operator=(const StreamMemoryPool&) = delete;

    [[nodiscard]] cudaMemPool_t get() const noexcept { return pool_; }

  private:
    /// Otherwise each wait for the device would give it back.
    void keep_freed_memory() {
        std::uint64_t bytes = std::uint64_t{64} << 20;
        cuda::check(cudaMemPoolSetAttribute(pool_, cudaMemPoolAttrReleaseThreshold, &bytes),
                    "cudaMemPoolSetAttribute");
    }

    void open_to_others(int device) {
        int count = 0;
        cuda::check(cudaGetDeviceCount(&count), "cudaGetDeviceCount");
        std::vector<cudaMemAccessDesc> others;
        for (int other = 0; other < count; ++other) {
            int reaches = 0;
            if (other == device) continue;
            cuda::check(cudaDeviceCanAccessPeer(&reaches, other, device), "cudaDeviceCanAccessPeer");
            if (reaches == 0) continue;
            cudaMemAccessDesc access{};
            access.location.type = cudaMemLocationTypeDevice;
            access.location.id = other;
            access.flags = cudaMemAccessFlagsProtReadWrite;
            others.push_back(access);
        }
        if (!others.empty())
            cuda::check(cudaMemPoolSetAccess(pool_, others.data(), others.size()), "cudaMemPoolSetAccess");
    }

    cudaMemPool_t pool_ = nullptr;
};

/// Allocated and freed in a stream's order: it may be dropped as soon as the stream has been given what uses
/// it. None of it blocks.
class StreamMemory {
  public:
    StreamMemory(const StreamMemoryPool& pool, std::size_t bytes, StreamRef stream) : stream_(stream) {
        cuda::check(
            cudaMallocFromPoolAsync(&data_, std::max<std::size_t>(bytes, 1), pool.get(), stream.get()),
            "cudaMallocFromPoolAsync");
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

/// Zeroed, on the communicator's device. It is registered as long as the communicator is open; its end waits
/// until the device has done all that it has been given. Collective.
[[nodiscard]] inline std::shared_ptr<void> allocate_by_nccl(const std::shared_ptr<NcclComm>& comm,
                                                            std::size_t bytes) {
    const std::size_t size = std::max<std::size_t>(bytes, 1);
    void* memory = nullptr;
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 19, 0)
    if (const ncclResult_t result = ncclMemAlloc(&memory, size); result != ncclSuccess)
        throw BackendError(text("rank ", comm->job_rank(), ": ncclMemAlloc of ", size,
                                " bytes: ", ncclGetErrorString(result)));
    const std::shared_ptr<void> owned(memory, [comm](void* data) {
        // NCCL does not wait for those that use it, as cudaFree does.
        cuda::detail::await_device(comm->device());
        if (comm->deregister_memory(data) && !cuda::detail::is_stuck(comm->device()))
            static_cast<void>(ncclMemFree(data));
    });
    cuda::check(cudaMemset(memory, 0, size), "cudaMemset");
    cuda::check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    comm->register_memory(memory, size);
    return owned;
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
