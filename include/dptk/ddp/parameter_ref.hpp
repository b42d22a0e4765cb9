/// One parameter as the data-parallel code sees it: a name for messages, a shape, and where its value and its
/// gradient lie. Points, and owns nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "dptk/core/buffer.hpp"
#include "dptk/core/error.hpp"
#include "dptk/core/text.hpp"

namespace dptk {

/// What comes of asking for a late gradient where there is none.
enum class IfMissing { null, make };

struct ParameterRef {
    /// How messages call it: "weights[2]", "conv1.bias".
    std::string name;
    /// The logical shape. The product may be below `count`, where a backend's layout pads.
    std::vector<std::size_t> shape;
    DType dtype = DType::f32;
    Device device = {};
    /// Elements in memory, of the value and of the gradient alike.
    std::size_t count = 0;
    void* value = nullptr;
    /// Null where there is none yet.
    void* gradient = nullptr;
    /// Of a gradient whose memory comes and goes with each backward: where it is now. `gradient` is then null
    /// until mark_ready(i, gradient). One that is made is written whole by who asks for it.
    std::function<void*(IfMissing)> late_gradient = {};
    /// Distinguishes memory layouts of one logical shape; equal on all ranks. 0: row-major.
    std::uint64_t layout = 0;
};

namespace detail {

/// Throws ArgumentError where a parameter is not in host memory, which is all that `who` works on.
inline void require_host_memory(std::span<const ParameterRef> parameters, std::string_view who) {
    for (const ParameterRef& parameter : parameters) {
        if (parameter.device.type != DeviceType::cpu)
            throw ArgumentError(text(who, " is for host memory, and parameter ", parameter.name, " is on ",
                                     device_name(parameter.device)));
    }
}

/// Throws ArgumentError where a gradient's memory comes and goes, which `who` cannot follow.
inline void require_lasting_gradients(std::span<const ParameterRef> parameters, std::string_view who) {
    for (const ParameterRef& parameter : parameters) {
        if (parameter.late_gradient)
            throw ArgumentError(text(who, " needs gradients that keep their memory, and that of ",
                                     parameter.name, " comes to be in backward"));
    }
}

}  // namespace detail

}  // namespace dptk
