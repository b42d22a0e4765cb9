/// Memory that communication hooks keep between steps, for each bucket or each parameter, on the device of
/// the bucket.
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

/// Allocates zero-initialized memory on the bucket's device.
[[nodiscard]] OwnedBuffer allocate(const HookBucket& bucket, std::size_t count, DType dtype);

/// One block of memory for each bucket.
class HookMemory {
  public:
    /// Returns the bucket's block. It keeps its contents until another size or type is requested.
    [[nodiscard]] Buffer get(const HookBucket& bucket, std::size_t count, DType dtype);

  private:
    std::vector<OwnedBuffer> blocks_;
};

/// Floats that a hook keeps for each parameter.
class HookFloats {
  public:
    using State = std::map<std::size_t, std::vector<float>>;

    /// Returns `count` floats of a parameter. They are zero unless the parameter already had `count`
    /// floats.
    [[nodiscard]] Buffer get(const HookBucket& bucket, std::size_t parameter, std::size_t count);

    /// Returns whether the parameter has this number of floats.
    [[nodiscard]] bool has(std::size_t parameter, std::size_t count) const;

    /// Returns the floats of all parameters. Blocks if some are in device memory.
    [[nodiscard]] State state() const;

    void load(State state);

  private:
    struct Place {
        std::shared_ptr<DeviceLane> lane;
        OwnedBuffer memory;
    };

    static void read(const Place& place, std::vector<float>& to);

    std::map<std::size_t, Place> places_;
    State loaded_;  // the floats with which get() begins, by parameter
};

}  // namespace DPTK_NAMESPACE::detail

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/ddp/detail/hook_memory.ipp"
#endif
