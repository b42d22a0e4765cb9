/// Model buffers, such as running statistics: broadcasts a model's buffers from one rank at the beginning
/// of each step.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "dptk/comm/process_group.hpp"
#include "dptk/core/config.hpp"
#include "dptk/ddp/buffer_source.hpp"
#include "dptk/ddp/options.hpp"

namespace DPTK_NAMESPACE::detail {

class ModelBuffers {
  public:
    ModelBuffers() = default;

    /// Uses the buffers in the options, unless broadcast_buffers is false.
    explicit ModelBuffers(const DistributedDataParallelOptions& options);

    [[nodiscard]] bool has_any() const noexcept { return source_.has_value(); }
    [[nodiscard]] const std::vector<Buffer>& buffers() const noexcept { return buffers_; }

    /// Returns whether the buffers are in device memory instead of host memory.
    [[nodiscard]] bool are_on_devices() const noexcept;

    /// Re-reads the addresses. Throws ArgumentError if the number of buffers, or the size, type or device
    /// of a buffer, has changed since construction.
    void read();

    /// Broadcasts the buffers of rank `root`. For buffers on devices, waits for the work of `stream`.
    /// Collective, blocks.
    void broadcast(ProcessGroup& group, int root, StreamRef stream = {}) const;

    /// Returns the elements of all buffers. Throws ArgumentError if they are on devices.
    [[nodiscard]] std::vector<std::byte> copy();

    /// Writes what copy() has returned; does nothing if it is empty.
    void write(std::span<const std::byte> elements);

  private:
    void check_memory() const;

    std::optional<BufferSource> source_;
    std::vector<Buffer> buffers_;
    std::vector<Buffer> read_now_;           // workspace of read()
    mutable std::vector<std::byte> packed_;  // workspace of broadcast(), with the elements of all buffers
};

}  // namespace DPTK_NAMESPACE::detail

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/ddp/detail/model_buffers.ipp"
#endif
