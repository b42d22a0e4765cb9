/// What users give to verbs: contiguous ranges of elements, and the operation that combines these.
#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <memory>
#include <ranges>
#include <type_traits>
#include <utility>

#include "dptk/comm/allocation.hpp"
#include "dptk/comm/local_reduce.hpp"
#include "dptk/comm/reduce_op.hpp"
#include "dptk/core/buffer.hpp"
#include "dptk/core/dtype.hpp"

namespace dptk {

/// A contiguous range of elements to read: std::vector<float>, std::span<const double>, std::array<int, 3>,
/// ...
template <class R>
concept ElementRange =
    std::ranges::contiguous_range<R> && std::ranges::sized_range<R> && Element<std::ranges::range_value_t<R>>;

/// One whose elements may be written.
template <class R>
concept MutableElementRange =
    ElementRange<R> && !std::is_const_v<std::remove_reference_t<std::ranges::range_reference_t<R>>>;

/// One that does not die with the call that starts an operation on it: a variable, or a view of one.
template <class R>
concept OutlivesCall = std::is_lvalue_reference_v<R> || std::ranges::borrowed_range<R>;

/// How a reduction combines elements of type T: a ReduceOp, or a function `T f(const T&, const T&)` that is
/// associative, and the same on all ranks. Functions are called with elements of lower ranks first, and need
/// not be commutative. They must not throw.
template <Element T>
class ReduceOperation {
  public:
    ReduceOperation(ReduceOp op) : op_(op) {}  // NOLINT(google-explicit-constructor): a widening

    template <class F>
        requires std::is_invocable_r_v<T, const F&, const T&, const T&>
    ReduceOperation(F function)  // NOLINT(google-explicit-constructor): a widening
        : function_(std::make_shared<const UserFunction>(
              UserFunction{[function = std::move(function)](void* into, const void* from, std::size_t count) {
                  for (std::size_t i = 0; i < count; ++i)
                      detail::store<T>(into, i, function(detail::load<T>(into, i), detail::load<T>(from, i)));
              }})) {}

    [[nodiscard]] Reduction reduction() const { return function_ ? Reduction(*function_) : Reduction(op_); }

    /// What an operation that goes on must keep alive.
    [[nodiscard]] const std::shared_ptr<const UserFunction>& function() const noexcept { return function_; }

  private:
    ReduceOp op_ = ReduceOp::sum;
    std::shared_ptr<const UserFunction> function_;
};

/// The operation on a range's elements.
template <ElementRange R>
using ReduceOperationOn = ReduceOperation<std::remove_cv_t<std::ranges::range_value_t<R>>>;

namespace detail {

template <ElementRange R>
[[nodiscard]] Buffer buffer_of(R&& range) {
    using T = std::remove_cv_t<std::ranges::range_value_t<R>>;
    // A collective that only reads leaves the elements alone; Buffer does not distinguish.
    void* data = const_cast<T*>(std::ranges::data(range));
    return {data, static_cast<std::size_t>(std::ranges::size(range)), dtype_of<T>, {}, sizeof(T)};
}

/// Two ranges of one call.
template <class A, class B>
concept SameElements = std::same_as<std::remove_cv_t<std::ranges::range_value_t<A>>,
                                    std::remove_cv_t<std::ranges::range_value_t<B>>>;

/// What an operation on `range` must keep alive: the memory of an Allocation; nothing of the user's.
template <class R>
[[nodiscard]] std::shared_ptr<const void> owner_of(const R&) {
    return nullptr;
}

template <class T>
[[nodiscard]] std::shared_ptr<const void> owner_of(const Allocation<T>& allocation) {
    return allocation.memory();
}

template <class T>
[[nodiscard]] std::shared_ptr<const void> owner_of(const ReduceOperation<T>& operation) {
    return operation.function();
}

[[nodiscard]] inline std::shared_ptr<const void> owner_of(const std::shared_ptr<const void>& owner) {
    return owner;
}

/// What an operation on all of these must keep alive.
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

}  // namespace dptk
