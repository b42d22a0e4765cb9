/// Device memory for NCCL calls: stream-ordered temporary memory, and memory that NCCL allocates and
/// registers for zero-copy transfers.
#pragma once

#include <cstddef>
#include <memory>

#include "dptk/comm/nccl/comm.hpp"
#include "dptk/core/buffer.hpp"
#include "dptk/core/config.hpp"
#include "dptk/core/cuda/error.hpp"
#include "dptk/core/stream_ref.hpp"

namespace DPTK_NAMESPACE::detail {

/// The memory pool for StreamMemory on one device. Other devices with peer access can access the memory of
/// the pool, because NCCL lets the devices of one process read each other's buffers directly.
class StreamMemoryPool {
  public:
    explicit StreamMemoryPool(int device);
    /// Destroys the pool. Memory that is in use remains valid until it is freed.
    ~StreamMemoryPool();
    StreamMemoryPool(const StreamMemoryPool&) = delete;
    StreamMemoryPool& operator=(const StreamMemoryPool&) = delete;

    [[nodiscard]] cudaMemPool_t get() const noexcept { return pool_; }

  private:
    /// Keeps up to 64 MiB of freed memory in the pool. By default, each synchronization would return freed
    /// memory to the system.
    void keep_freed_memory();

    void open_to_others(int device);

    cudaMemPool_t pool_ = nullptr;
};

/// Stream-ordered device memory. The object may be destroyed as soon as all operations that use the memory
/// are enqueued on the stream. Neither allocation nor release blocks.
class StreamMemory {
  public:
    StreamMemory(const StreamMemoryPool& pool, std::size_t bytes, StreamRef stream);
    ~StreamMemory();
    StreamMemory(const StreamMemory&) = delete;
    StreamMemory& operator=(const StreamMemory&) = delete;

    [[nodiscard]] void* data(std::size_t offset = 0) const noexcept;

    /// Returns a buffer with the shape of `other` in this memory.
    [[nodiscard]] Buffer like(const Buffer& other, int device) const noexcept;

  private:
    void* data_ = nullptr;
    StreamRef stream_;
};

/// Allocates zeroed memory on the communicator's device by ncclMemAlloc, and registers it until the
/// communicator closes; uses cudaMalloc if NCCL is older than 2.19. Releasing the memory waits until the
/// device has completed all of its operations. Collective.
[[nodiscard]] std::shared_ptr<void> allocate_by_nccl(const std::shared_ptr<NcclComm>& comm,
                                                     std::size_t bytes);

}  // namespace DPTK_NAMESPACE::detail

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/comm/nccl/memory.ipp"
#endif
