/// What a model keeps besides its parameters, and gets from one rank at the beginning of each step.
#pragma once

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "dptk/comm/coalesced.hpp"
#include "dptk/comm/process_group.hpp"
#include "dptk/ddp/buffer_source.hpp"
#include "dptk/ddp/model_parameters.hpp"
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

    /// Otherwise they are in host memory.
    [[nodiscard]] bool are_on_devices() const noexcept {
        return !buffers_.empty() && buffers_.front().on_device();
    }

    /// Where they are now. Throws ArgumentError where they are not those of construction.
    void read() {
        if (!source_) return;
        std::vector<Buffer> now = source_->collect();
        const auto is_same = [](const Buffer& a, const Buffer& b) {
            return same_shape(a, b) && a.device == b.device;
        };
        if (!std::ranges::equal(now, buffers_, is_same))
            throw ArgumentError("the model's buffers are not those of construction");
        buffers_ = std::move(now);
    }

    /// Those on a device behind what `stream` has been given. Collective, blocks.
    void broadcast(ProcessGroup& group, int root, StreamRef stream = {}) const {
        if (are_on_devices()) {
            for (const Buffer& buffer : buffers_)
                ModelParameters::run(group, {.verb = Verb::broadcast,
                                             .input = buffer,
                                             .output = buffer,
                                             .root = root,
                                             .stream = stream});
            return;
        }
        const ErasedBuffers erased{buffers_, {}};
        run_coalesced(group, {.verb = Verb::broadcast, .root = root}, erased, erased);
    }

  private:
    void check_memory() const {
        for (const Buffer& buffer : buffers_) {
            if (buffer.on_device() != are_on_devices())
                throw ArgumentError(
                    "buffers are in host memory or on devices, and not some of them here and "
                    "some there");
        }
    }

    std::optional<BufferSource> source_;
    std::vector<Buffer> buffers_;
};

}  // namespace dptk::detail
