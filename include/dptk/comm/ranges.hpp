/// Concepts for the arguments of collectives: contiguous ranges of elements in host or device memory, and
/// ReduceOperation, the operation that combines them.
#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <memory>
#include <ranges>
#include <type_traits>
#include <utility>

#include "dptk/comm/algorithms/local_reduce.hpp"
#include "dptk/comm/allocation.hpp"
#include "dptk/comm/reduce_op.hpp"
#include "dptk/core/buffer.hpp"
#include "dptk/core/config.hpp"
#include "dptk/core/device_span.hpp"
#include "dptk/core/dtype.hpp"

namespace DPTK_NAMESPACE {

/// A contiguous range of elements in host memory: std::vector<float>, std::span<const double>,
/// std::array<int, 3>, ... Ranges of views satisfy it as well, so that a verb can refuse them with a
/// sentence.
template <class R>
concept HostRange =
    std::ranges::contiguous_range<R> && std::ranges::sized_range<R> &&
    (Element<std::ranges::range_value_t<R>> || detail::ViewOfMemory<std::ranges::range_value_t<R>>);

/// A range of elements to read, in host memory or on a device.
template <class R>
concept ElementRange = HostRange<R> || DeviceRange<R>;

namespace detail {

template <class R>
struct ElementOf {};

template <HostRange R>
struct ElementOf<R> {
    using type = std::remove_reference_t<std::ranges::range_reference_t<R>>;
};

template <DeviceRange R>
struct ElementOf<R> {
    using type = std::remove_pointer_t<decltype(std::declval<R&>().data())>;
};

template <class R>
inline constexpr bool is_device_span = false;
template <class T>
inline constexpr bool is_device_span<DeviceSpan<T>> = true;

}  // namespace detail

/// The type of a range's elements.
template <ElementRange R>
using ElementIn = std::remove_cv_t<typename detail::ElementOf<R>::type>;

/// A range whose elements may be written.
template <class R>
concept MutableElementRange = ElementRange<R> && !std::is_const_v<typename detail::ElementOf<R>::type>;

/// A range whose elements outlive the call that starts an operation on them: a variable, or a view of one.
template <class R>
concept OutlivesCall =
    std::is_lvalue_reference_v<R> || std::ranges::borrowed_range<R> || detail::is_device_span<R>;

/// How a reduction combines elements of type T: a ReduceOp, a WeightedSum, or a function `T f(const T&, const
/// T&)` that is associative, and the same on all ranks. The first argument of the function comes from lower
/// ranks than the second, so the function need not be commutative. It must not throw.
template <Element T>
class ReduceOperation {
  public:
    /// Creates a built-in operation. Verbs throw ArgumentError if the operation is not defined for T.
    ReduceOperation(ReduceOp op) : reduction_(op) {}  // NOLINT(google-explicit-constructor): a widening
    /// Creates a weighted sum: each rank's elements are multiplied by the weight that this rank passes.
    ReduceOperation(WeightedSum sum) : reduction_(sum) {}  // NOLINT(google-explicit-constructor): a widening

    /// Creates a built-in operation from a function object of the standard library: std::plus, multiplies,
    /// bit_and, bit_or or bit_xor.
    template <class F>
        requires detail::is_known_function<F, T>
    ReduceOperation(F)  // NOLINT(google-explicit-constructor): a widening
        : reduction_(*detail::op_of_function<F>) {}

    /// Creates an operation that calls `function`. The function is kept alive until the last call that uses
    /// it has ended.
    template <class F>
        requires std::is_invocable_r_v<T, const F&, const T&, const T&> && (!detail::is_known_function<F, T>)
    ReduceOperation(F function)  // NOLINT(google-explicit-constructor): a widening
        : function_(std::make_shared<const UserFunction>(
              UserFunction{[function = std::move(function)](void* into, const void* from, std::size_t count) {
                  for (std::size_t i = 0; i < count; ++i)
                      detail::store<T>(
                          into, i,
                          static_cast<T>(function(detail::load<T>(into, i), detail::load<T>(from, i))));
              }})) {}

    /// Returns the type-erased operation for a Collective. The result refers to the user function of this
    /// object.
    [[nodiscard]] Reduction reduction() const { return function_ ? Reduction(*function_) : reduction_; }

    /// Returns the owner of the user function, which a started operation keeps alive; null if this is a
    /// ReduceOp or a WeightedSum.
    [[nodiscard]] const std::shared_ptr<const UserFunction>& function() const noexcept { return function_; }

  private:
    Reduction reduction_;
    std::shared_ptr<const UserFunction> function_;
};

/// The type of a reduction on a range's elements.
template <ElementRange R>
using ReduceOperationOn = ReduceOperation<ElementIn<R>>;

namespace detail {

template <HostRange R>
void set_buffer(Buffer& buffer, R&& range) {
    using T = ElementIn<R>;
    refuse_views<T>();
    // Buffer has no const variant; a collective does not write the elements of an input.
    buffer.data = const_cast<T*>(std::ranges::data(range));
    buffer.count = static_cast<std::size_t>(std::ranges::size(range));
    buffer.dtype = dtype_of<T>;
    buffer.opaque_size = sizeof(T);
}

template <DeviceRange R>
void set_buffer(Buffer& buffer, R&& range) {
    using T = ElementIn<R>;
    buffer.data = const_cast<T*>(range.data());
    buffer.count = static_cast<std::size_t>(range.size());
    buffer.dtype = dtype_of<T>;
    buffer.device = range.device();
    buffer.opaque_size = sizeof(T);
}

template <class R>
    requires HostRange<R> || DeviceRange<R>
[[nodiscard]] Buffer buffer_of(R&& range) {
    Buffer buffer;
    set_buffer(buffer, range);
    return buffer;
}

/// Two ranges with the same element type.
template <class A, class B>
concept SameElements = std::same_as<ElementIn<A>, ElementIn<B>>;

/// Returns the owner that an operation on the range must keep alive: the owner of an Allocation's memory, or
/// null for other ranges, whose memory the user keeps alive.
template <class R>
[[nodiscard]] std::shared_ptr<const void> owner_of(const R&) {
    return nullptr;
}

template <class T>
[[nodiscard]] std::shared_ptr<const void> owner_of(const Allocation<T>& allocation) {
    return allocation.memory();
}

template <class T>
[[nodiscard]] std::shared_ptr<const void> owner_of(const DeviceAllocation<T>& allocation) {
    return allocation.memory();
}

template <class T>
[[nodiscard]] std::shared_ptr<const void> owner_of(const ReduceOperation<T>& operation) {
    return operation.function();
}

[[nodiscard]] inline std::shared_ptr<const void> owner_of(const std::shared_ptr<const void>& owner) {
    return owner;
}

/// Returns one owner that keeps the owners of all arguments alive; null if no argument has an owner.
template <class... Things>
[[nodiscard]] std::shared_ptr<const void> owner_of_all(const Things&... things) {
    using Owners = std::array<std::shared_ptr<const void>, sizeof...(things)>;
    const Owners owners = {owner_of(things)...};
    for (const auto& owner : owners) {
        if (owner) return std::make_shared<Owners>(owners);
    }
    return nullptr;
}

}  // namespace detail

}  // namespace DPTK_NAMESPACE
