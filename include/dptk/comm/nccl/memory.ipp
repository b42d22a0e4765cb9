#pragma once

#include "dptk/comm/nccl/memory.hpp"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "dptk/core/cuda/device.hpp"

namespace DPTK_NAMESPACE::detail {

DPTK_INLINE StreamMemoryPool::StreamMemoryPool(int device) {
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

DPTK_INLINE StreamMemoryPool::~StreamMemoryPool() {
    static_cast<void>(cudaMemPoolDestroy(pool_));
}

DPTK_INLINE void StreamMemoryPool::keep_freed_memory() {
    std::uint64_t bytes = std::uint64_t{64} << 20;
    cuda::check(cudaMemPoolSetAttribute(pool_, cudaMemPoolAttrReleaseThreshold, &bytes),
                "cudaMemPoolSetAttribute");
}

DPTK_INLINE void StreamMemoryPool::open_to_others(int device) {
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

DPTK_INLINE StreamMemory::StreamMemory(const StreamMemoryPool& pool, std::size_t bytes, StreamRef stream)
    : stream_(stream) {
    cuda::check(cudaMallocFromPoolAsync(&data_, std::max<std::size_t>(bytes, 1), pool.get(), stream.get()),
                "cudaMallocFromPoolAsync");
}

DPTK_INLINE StreamMemory::~StreamMemory() {
    static_cast<void>(cudaFreeAsync(data_, stream_.get()));
}

DPTK_INLINE void* StreamMemory::data(std::size_t offset) const noexcept {
    return static_cast<std::byte*>(data_) + offset;
}

DPTK_INLINE Buffer StreamMemory::like(const Buffer& other, int device) const noexcept {
    Buffer buffer = other.at(data_);
    buffer.device = {DeviceType::cuda, device};
    return buffer;
}

DPTK_INLINE std::shared_ptr<void> allocate_by_nccl(const std::shared_ptr<NcclComm>& comm, std::size_t bytes) {
    const std::size_t size = std::max<std::size_t>(bytes, 1);
    void* memory = nullptr;
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 19, 0)
    if (const ncclResult_t result = ncclMemAlloc(&memory, size); result != ncclSuccess)
        throw BackendError(text("rank ", comm->job_rank(), ": ncclMemAlloc of ", size,
                                " bytes: ", ncclGetErrorString(result)));
    const std::shared_ptr<void> owned(memory, [comm](void* data) {
        // Unlike cudaFree, ncclMemFree does not wait for operations that use the memory.
        cuda::detail::wait_for_device(comm->device());
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

}  // namespace DPTK_NAMESPACE::detail
