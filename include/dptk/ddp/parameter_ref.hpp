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
#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE {

/// What a late gradient's function does where there is none yet: return a null pointer, or make one.
enum class IfMissing { null, make };

/// What a model's own for_each_parameter(sink) may give to the sink, and what parameters() returns. Value and
/// gradient are `count` elements of `dtype` each, one behind the other, on one device. The memory stays the
/// program's: dptk writes rank 0's values into it at construction, and averages in each step, and asks for
/// the addresses anew each time. On all ranks there are as many parameters, in the same order, with equal
/// name, dtype, shape, count and layout; MismatchError where not. Number, count, dtype and device stay what
/// they were at construction; ArgumentError where not.
struct ParameterRef {
    /// How messages call it: "weights[2]", "conv1.bias". Where empty, ParameterSink makes one.
    std::string name;
    /// The logical shape, the first dimension first, whatever the order in memory. The product may be below
    /// `count`, where a backend's layout pads.
    std::vector<std::size_t> shape;
    DType dtype = DType::f32;  ///< Of value and gradient: a floating-point type.
    Device device = {};        ///< Where both of them lie; the host's memory, unless said otherwise.
    /// Elements in memory, of the value and of the gradient alike.
    std::size_t count = 0;
    void* value = nullptr;  ///< The first element. Null only where `count` is 0.
    /// The gradient's first element. Null where another container has it, or where it is late.
    void* gradient = nullptr;
    /// Of a gradient whose memory comes and goes with each backward, under Ready::marked: where it is now.
    /// `gradient` is then null until mark_ready(i, gradient). Called by accumulate(), and by synchronize()
    /// for what this rank has not marked; may throw. The memory stays until synchronize() has returned, and
    /// clip_grad_norm() and its like where they follow. One that is made is written whole by who asks for it.
    std::function<void*(IfMissing)> lazy_gradient = {};
    /// Distinguishes memory layouts of one logical shape; equal on all ranks. 0: row-major; column_major; or
    /// a number of the program's own, such as a hash of strides.
    std::uint64_t layout = 0;
};

namespace detail {

/// Throws ArgumentError where a parameter is not in host memory, which is all that `who` works on.
void require_host_memory(std::span<const ParameterRef> parameters, std::string_view who);

/// Throws ArgumentError where a gradient's memory comes and goes, which `who` cannot follow.
void require_lasting_gradients(std::span<const ParameterRef> parameters, std::string_view who);

}  // namespace detail

}  // namespace DPTK_NAMESPACE

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/ddp/parameter_ref.ipp"
#endif
