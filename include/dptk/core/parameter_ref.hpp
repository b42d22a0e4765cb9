/// ParameterRef describes one parameter: its name, its shape, and where its value and its gradient lie. It
/// does not own the memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "dptk/core/buffer.hpp"
#include "dptk/core/config.hpp"
#include "dptk/core/dtype.hpp"

namespace DPTK_NAMESPACE {

/// What ParameterRef::lazy_gradient does if the gradient does not exist yet: return a null pointer, or
/// allocate the gradient.
enum class IfMissing { null, make };

/// Describes one parameter of a model, without owning its memory. A model's for_each_parameter(sink) may
/// pass a ParameterRef to the sink, and DistributedDataParallel::parameters() returns all of them. Value
/// and gradient are `count` contiguous elements each, on one device. Their element types may differ, as in
/// mixed precision. dptk writes rank 0's values and the averages into this memory, and asks for the addresses
/// again in each step.
///
/// All ranks must have equally many parameters, in the same order, with equal name, element types, shape,
/// count and layout; otherwise MismatchError is thrown. The number of parameters, and the count, shape,
/// layout, element types and device of each, and whether its gradient is lazy, must not change after a
/// DistributedDataParallel has been constructed; otherwise ArgumentError is thrown.
struct ParameterRef {
    /// The name for error messages: "weights[2]", "conv1.bias". If the name is empty, ParameterSink
    /// generates one.
    std::string name;
    /// The logical shape, first dimension first, independent of the order in memory. The product of the
    /// dimensions may be below `count` if a backend's layout has padding.
    std::vector<std::size_t> shape;
    DType dtype = DType::f32;  ///< Element type of the value: a floating-point type.
    /// Element type of the gradient: a floating-point type. Default: that of the value.
    std::optional<DType> gradient_dtype = std::nullopt;
    Device device = {};  ///< The memory in which value and gradient lie. Default: host memory.
    /// The number of elements of the value, and of the gradient, including padding.
    std::size_t count = 0;
    void* value = nullptr;  ///< The first element. May be null only if `count` is 0.
    /// The gradient's first element. Null if another container has the gradient, or if the gradient is
    /// lazy.
    void* gradient = nullptr;
    /// A function that returns the current address of a lazy gradient: a gradient whose memory is allocated
    /// by each backward. Lazy gradients require Ready::marked. If this function is set, the member `gradient`
    /// is null until mark_ready() passes the address. accumulate() calls this function, and synchronize()
    /// calls it for gradients that this rank has not marked; the function may throw. The gradient's memory
    /// must exist until synchronize() has returned, and during subsequent calls such as clip_grad_norm().
    /// With IfMissing::make, the new gradient may be uninitialized: the caller overwrites all of it.
    std::function<void*(IfMissing)> lazy_gradient = {};
    /// Distinguishes memory layouts of one logical shape. 0 means row-major; other values are column_major,
    /// padded_columns(), or a number that the program chooses, such as a hash of strides. Must be equal on
    /// all ranks.
    std::uint64_t layout = 0;

    /// Returns the elements of the value, with their type erased.
    [[nodiscard]] Buffer value_buffer() const noexcept { return {value, count, dtype, device}; }

    /// Returns the elements of the gradient, with their type erased. Its address is null if the gradient is
    /// lazy and does not exist yet.
    [[nodiscard]] Buffer gradient_buffer() const noexcept {
        return {gradient, count, gradient_dtype.value_or(dtype), device};
    }

    /// Returns the elements of the value. Throws ArgumentError if they are not of type T, or not in host
    /// memory.
    template <Element T>
    [[nodiscard]] std::span<T> values() const {
        check_access(value_buffer(), dtype_of<T>, "value");
        return {static_cast<T*>(value), count};
    }

    /// Returns the elements of the gradient. Throws ArgumentError if they are not of type T, not in host
    /// memory, or if the gradient is lazy and does not exist yet.
    template <Element T>
    [[nodiscard]] std::span<T> gradients() const {
        check_access(gradient_buffer(), dtype_of<T>, "gradient");
        return {static_cast<T*>(gradient), count};
    }

  private:
    void check_access(const Buffer& elements, DType requested, std::string_view what) const;
};

namespace detail {

/// Throws ArgumentError if a parameter is not in host memory. `who` names the feature that requires host
/// memory.
void require_host_memory(std::span<const ParameterRef> parameters, std::string_view who);

/// Throws ArgumentError if a parameter has a lazy gradient. `who` names the feature that does not support
/// lazy gradients.
void require_lasting_gradients(std::span<const ParameterRef> parameters, std::string_view who);

}  // namespace detail

}  // namespace DPTK_NAMESPACE

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/core/parameter_ref.ipp"
#endif
