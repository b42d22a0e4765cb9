/// Concepts for arguments of calls on several buffers at once (coalesced and multi-device collectives): a
/// range, or a tuple, whose elements are contiguous ranges.
#pragma once

#include <cstddef>
#include <memory>
#include <ranges>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "dptk/comm/ranges.hpp"
#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE {

namespace detail {

/// RangesIn<B>::type is a tuple with the type of each range in the list B. The type is an rvalue reference if
/// the range is destroyed with the list.
template <class B>
struct RangesIn {};

template <std::ranges::input_range B>
// The elements of a range must outlive the increment of the list's iterator.
    requires OutlivesCall<std::ranges::range_reference_t<B>>
struct RangesIn<B> {
    using Range = std::ranges::range_reference_t<B>;
    using type = std::tuple<std::conditional_t<OutlivesCall<B>, Range, std::remove_reference_t<Range>&&>>;
};

template <class B>
    requires(!std::ranges::range<B>) && requires { std::tuple_size<std::remove_cvref_t<B>>::value; }
struct RangesIn<B> {
    static constexpr std::size_t count = std::tuple_size_v<std::remove_cvref_t<B>>;

    template <std::size_t... I>
    static auto list(std::index_sequence<I...>) -> std::tuple<decltype(std::get<I>(std::declval<B>()))...>;

    using type = decltype(list(std::make_index_sequence<count>()));
};

template <class Tuple>
struct RangesTraits {
    static constexpr bool readable = false;
    static constexpr bool writable = false;
    static constexpr bool outlive_call = false;
};

template <ElementRange... R>
struct RangesTraits<std::tuple<R...>> {
    static constexpr bool readable = true;
    static constexpr bool writable = (MutableElementRange<R> && ...);
    static constexpr bool outlive_call = (OutlivesCall<R> && ...);
};

template <class Tuple>
struct OperationOnRanges {
    using type = ReduceOp;
};

template <ElementRange R, ElementRange... More>
    requires(SameElements<R, More> && ...)
struct OperationOnRanges<std::tuple<R, More...>> {
    using type = ReduceOperationOn<R>;
};

}  // namespace detail

/// A list of buffers to read, in host memory or on devices: std::vector<std::vector<float>>,
/// std::array<std::span<const int>, 3>, std::tie(weights, counts), ... The element types of a tuple's buffers
/// may differ. A range that creates its buffers during iteration, such as std::views::transform, must create
/// views, not containers.
template <class B>
concept BufferList = requires { typename detail::RangesIn<B>::type; } &&
                     detail::RangesTraits<typename detail::RangesIn<B>::type>::readable;

/// A BufferList whose elements may be written: no const containers, and no spans of const elements.
template <class B>
concept MutableBufferList =
    BufferList<B> && detail::RangesTraits<typename detail::RangesIn<B>::type>::writable;

/// A BufferList whose elements outlive the call that starts an operation on them: a variable, or a list of
/// views. A list of views may itself be a temporary. The elements must live until the operation is done.
template <class B>
concept BufferListOutlivesCall = detail::RangesTraits<typename detail::RangesIn<B>::type>::outlive_call;

/// The type of a reduction on the buffers' elements: ReduceOperation, which can hold a user function, if all
/// elements have the same type; ReduceOp otherwise.
template <BufferList B>
using ReduceOperationOnList = detail::OperationOnRanges<typename detail::RangesIn<B>::type>::type;

namespace detail {

/// Type-erased buffers and, for each buffer, the owner of its memory (null unless the buffer is an
/// Allocation).
struct ErasedBuffers {
    std::vector<Buffer> buffers;
    std::vector<std::shared_ptr<const void>> owners;
};

template <class B, class Action>
void for_each_range(B& list, Action&& action) {
    if constexpr (std::ranges::range<B>) {
        for (auto&& range : list) action(range);
    } else {
        std::apply([&](auto&&... ranges) { (action(ranges), ...); }, list);
    }
}

template <BufferList B>
[[nodiscard]] ErasedBuffers erase_buffers(B&& list) {
    ErasedBuffers erased;
    for_each_range(list, [&](auto&& range) {
        erased.buffers.push_back(buffer_of(range));
        erased.owners.push_back(owner_of(range));
    });
    return erased;
}

[[nodiscard]] inline Reduction reduction_of(ReduceOp op) {
    return op;
}

template <class T>
[[nodiscard]] Reduction reduction_of(const ReduceOperation<T>& operation) {
    return operation.reduction();
}

}  // namespace detail

}  // namespace DPTK_NAMESPACE
