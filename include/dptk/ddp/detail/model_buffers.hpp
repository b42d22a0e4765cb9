/// What a model keeps besides its parameters, and gets from one rank at the beginning of each step.
#pragma once

#include <optional>
#include <vector>

#include "dptk/comm/process_group.hpp"
#include "dptk/core/config.hpp"
#include "dptk/ddp/buffer_source.hpp"
#include "dptk/ddp/options.hpp"

namespace DPTK_NAMESPACE::detail {

class ModelBuffers {
  public:
    ModelBuffers() = default;

    /// Those of the options, unless they are not to be sent.
    explicit ModelBuffers(const DistributedDataParallelOptions& options);

    [[nodiscard]] bool has_any() const noexcept { return source_.has_value(); }
    [[nodiscard]] const std::vector<Buffer>& buffers() const noexcept { return buffers_; }

    /// Otherwise they are in host memory.
    [[nodiscard]] bool are_on_devices() const noexcept;

    /// Where they are now. Throws ArgumentError where they are not those of construction.
    void read();

    /// Those on a device behind what `stream` has been given. Collective, blocks.
    void broadcast(ProcessGroup& group, int root, StreamRef stream = {}) const;

  private:
    void check_memory() const;

    std::optional<BufferSource> source_;
    std::vector<Buffer> buffers_;
};

}  // namespace DPTK_NAMESPACE::detail

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/ddp/detail/model_buffers.ipp"
#endif
