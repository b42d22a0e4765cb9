/// Device memory of NCCL's calls: that which one call needs for a moment, and that which NCCL has allocated
/// and registered, so that it reaches it without a copy.
#pragma once

#include <cstddef>
#include <memory>

#include "dptk/comm/nccl/comm.hpp"
#include "dptk/core/buffer.hpp"
#include "dptk/core/config.hpp"
#include "dptk/core/cuda/error.hpp"
#include "dptk/core/stream_ref.hpp"

namespace DPTK_NAMESPACE::detail {

/// From which one device's StreamMemory comes. All devices of this process reach it that can: NCCL lets those
/// of one process read each other's buffers where they are.
class StreamMemoryPool {
  public:
    explicit StreamMemoryPool(int device);
    /// Memory that is in use stays until it is freed.
    ~StreamMemoryPool();
    StreamMemoryPool(const StreamMemoryPool&) = delete;
    StreamMemoryPool& operator=(const StreamMemoryPool&) = delete;

    [[nodiscard]] cudaMemPool_t get() const noexcept { return pool_; }

  private:
    /// Otherwise each wait for the device would give it back.
    void keep_freed_memory();

    void open_to_others(int device);

    cudaMemPool_t pool_ = nullptr;
};

/// Allocated and freed in a stream's order: it may be dropped as soon as the stream has been given what uses
/// it. None of it blocks.
class StreamMemory {
  public:
    StreamMemory(const StreamMemoryPool& pool, std::size_t bytes, StreamRef stream);
    ~StreamMemory();
    StreamMemory(const StreamMemory&) = delete;
    StreamMemory& operator=(const StreamMemory&) = delete;

    [[nodiscard]] void* data(std::size_t offset = 0) const noexcept;

    /// A buffer like that one, here.
    [[nodiscard]] Buffer like(const Buffer& other, int device) const noexcept;

  private:
    void* data_ = nullptr;
    StreamRef stream_;
};

/// Zeroed, on the communicator's device. It is registered as long as the communicator is open; its end waits
/// until the device has done all that it has been given. Collective.
[[nodiscard]] std::shared_ptr<void> allocate_by_nccl(const std::shared_ptr<NcclComm>& comm,
                                                     std::size_t bytes);

}  // namespace DPTK_NAMESPACE::detail

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/comm/nccl/memory.ipp"
#endif
