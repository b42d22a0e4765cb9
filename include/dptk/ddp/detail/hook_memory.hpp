/// What a communication hook needs beside a bucket: memory where the bucket is, kept from step to step.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <vector>

#include "dptk/core/buffer.hpp"
#include "dptk/core/config.hpp"
#include "dptk/core/detail/device_lane.hpp"
#include "dptk/ddp/comm_hook.hpp"

namespace DPTK_NAMESPACE::detail {

/// Zeros, where the bucket is.
[[nodiscard]] OwnedBuffer allocate(const HookBucket& bucket, std::size_t count, DType dtype);

/// A block for each bucket.
class HookMemory {
  public:
    /// Where nobody has asked for one of another size or type, the block has what was left in it.
    [[nodiscard]] Buffer get(const HookBucket& bucket, std::size_t count, DType dtype);

  private:
    std::vector<OwnedBuffer> blocks_;
};

/// Floats that a hook remembers of each parameter.
class HookFloats {
  public:
    using State = std::map<std::size_t, std::vector<float>>;

    /// Those of a parameter; zeros where there are none, or not as many.
    [[nodiscard]] Buffer get(const HookBucket& bucket, std::size_t parameter, std::size_t count);

    /// Whether there are any, so many.
    [[nodiscard]] bool has(std::size_t parameter, std::size_t count) const;

    /// Of all parameters. Blocks where some are in device memory.
    [[nodiscard]] State state() const;

    void load(State state);

  private:
    struct Place {
        std::shared_ptr<DeviceLane> lane;
        OwnedBuffer memory;
    };

    static void read(const Place& place, std::vector<float>& to);

    std::map<std::size_t, Place> places_;
    State loaded_;  // of parameters that have no place yet
};

}  // namespace DPTK_NAMESPACE::detail

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/ddp/detail/hook_memory.ipp"
#endif
