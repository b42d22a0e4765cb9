/// The standard's algorithms over a whole range, without the constraints of std::ranges: each call of one of
/// those costs the compiler ten times as much.
#pragma once

#include <algorithm>
#include <cstddef>
#include <functional>
#include <iterator>
#include <utility>
#include <vector>

#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE::detail {

template <class Range, class Predicate>
[[nodiscard]] constexpr auto find_if(Range& range, Predicate predicate) {
    auto at = std::begin(range);
    while (at != std::end(range) && !predicate(*at)) ++at;
    return at;
}

template <class Range, class Value>
[[nodiscard]] constexpr auto find(Range& range, const Value& value) {
    auto at = std::begin(range);
    while (at != std::end(range) && !(*at == value)) ++at;
    return at;
}

/// Finds the first element whose `member` equals `value`.
template <class Range, class Value, class Element, class Member>
[[nodiscard]] constexpr auto find(Range& range, const Value& value, Member Element::*member) {
    auto at = std::begin(range);
    while (at != std::end(range) && !((*at).*member == value)) ++at;
    return at;
}

template <class Range, class Value>
[[nodiscard]] constexpr bool contains(const Range& range, const Value& value) {
    return detail::find(range, value) != std::end(range);
}

template <class Range, class Value, class Element, class Member>
[[nodiscard]] constexpr bool contains(const Range& range, const Value& value, Member Element::*member) {
    return detail::find(range, value, member) != std::end(range);
}

template <class Range, class Predicate>
[[nodiscard]] constexpr bool any_of(const Range& range, Predicate predicate) {
    for (const auto& element : range) {
        if (predicate(element)) return true;
    }
    return false;
}

template <class Range, class Predicate>
[[nodiscard]] constexpr bool all_of(const Range& range, Predicate predicate) {
    for (const auto& element : range) {
        if (!predicate(element)) return false;
    }
    return true;
}

template <class Range, class Predicate>
[[nodiscard]] constexpr bool none_of(const Range& range, Predicate predicate) {
    for (const auto& element : range) {
        if (predicate(element)) return false;
    }
    return true;
}

/// Returns whether all elements equal the first.
template <class Range>
[[nodiscard]] constexpr bool all_equal(const Range& range) {
    for (const auto& element : range) {
        if (!(element == *std::begin(range))) return false;
    }
    return true;
}

template <class Range, class Predicate>
[[nodiscard]] constexpr std::ptrdiff_t count_if(const Range& range, Predicate predicate) {
    std::ptrdiff_t count = 0;
    for (const auto& element : range) {
        if (predicate(element)) ++count;
    }
    return count;
}

template <class Range, class Value>
[[nodiscard]] constexpr std::ptrdiff_t count(const Range& range, const Value& value) {
    std::ptrdiff_t count = 0;
    for (const auto& element : range) {
        if (element == value) ++count;
    }
    return count;
}

template <class A, class B, class Equal = std::equal_to<>>
[[nodiscard]] constexpr bool equal(const A& a, const B& b, Equal equal = {}) {
    return std::equal(std::begin(a), std::end(a), std::begin(b), std::end(b), equal);
}

/// Returns the first of the largest elements, or the end of an empty range.
template <class Range, class Less = std::less<>>
[[nodiscard]] constexpr auto max_element(Range& range, Less less = {}) {
    return std::max_element(std::begin(range), std::end(range), less);
}

template <class T, class Predicate>
void erase_if(std::vector<T>& elements, Predicate predicate) {
    std::size_t kept = 0;
    for (T& element : elements) {
        if (predicate(element)) continue;
        if (&elements[kept] != &element) elements[kept] = std::move(element);
        ++kept;
    }
    while (elements.size() > kept) elements.pop_back();
}

/// Returns the position after the last element that was written.
template <class Range, class Out>
constexpr Out copy(const Range& range, Out out) {
    return std::copy(std::begin(range), std::end(range), out);
}

template <class Range, class Value>
constexpr void fill(Range&& range, const Value& value) {
    std::fill(std::begin(range), std::end(range), value);
}

template <class Range, class Less = std::less<>>
constexpr void sort(Range&& range, Less less = {}) {
    std::sort(std::begin(range), std::end(range), less);
}

template <class Range, class Less = std::less<>>
void stable_sort(Range&& range, Less less = {}) {
    std::stable_sort(std::begin(range), std::end(range), less);
}

template <class Range>
constexpr void reverse(Range&& range) {
    std::reverse(std::begin(range), std::end(range));
}

}  // namespace DPTK_NAMESPACE::detail
