/// What a model keeps besides its parameters, and gets from one rank at the beginning of each step.
#pragma once

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "dptk/comm/coalesced.hpp"
#include "dptk/comm/process_group.hpp"
#include "dptk/ddp/buffer_source.hpp"
#include "dptk/ddp/options.hpp"

namespace dptk::detail {

class ModelBuffers {
  public:
    ModelBuffers() = default;

    /// Those of the options, unless they are not to be sent.
    explicit ModelBuffers(const DistributedDataParallelOptions& options) {
        if (!options.buffers || !options.broadcast_buffers) return;
        source_ = options.buffers;
        buffers_ = source_->collect();
        check_memory();
    }

    [[nodiscard]] bool has_any() const noexcept { return source_.has_value(); }
    [[nodiscard]] const std::vector<Buffer>& buffers() const noexcept { return buffers_; }

    /// Where they are now. Throws ArgumentError where they are not those of construction.
    void read() {
        if (!source_) return;
        std::vector<Buffer> now = source_->collect();
        if (!std::ranges::equal(now, buffers_, &same_shape))
            throw ArgumentError("the model's buffers are not those of construction");
        buffers_ = std::move(now);
        check_memory();
    }

    /// Collective, blocks.
    void broadcast(ProcessGroup& group, int root) const {
        const ErasedBuffers erased{buffers_, {}};
        run_coalesced(group, {.verb = Verb::broadcast, .root = root}, erased, erased);
    }

  private:
    void check_memory() const {
        for (const Buffer& buffer : buffers_) {
            if (buffer.on_device())
                throw ArgumentError("buffers are in host memory, and one is on " +
                                    device_name(buffer.device));
        }
    }

    std::optional<BufferSource> source_;
    std::vector<Buffer> buffers_;
};

}  // namespace dptk::detail
