/// How DataLoader makes a batch from samples. The default depends on the type of a sample:
///
/// | sample | batch |
/// |---|---|
/// | a number | a `std::vector` of numbers |
/// | a contiguous range of numbers, such as a `std::span` | a Tensor of shape [n, elements] |
/// | an Image, with the loader's transforms | a Tensor of shape [n, channels, height, width] |
/// | a pair or tuple | a tuple of batches |
/// | any other type | a `std::vector` of samples |
///
/// A program may pass its own function from samples to a batch instead.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <ranges>
#include <span>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "dptk/core/config.hpp"
#include "dptk/core/detail/text.hpp"
#include "dptk/core/error.hpp"
#include "dptk/core/tensor.hpp"

namespace DPTK_NAMESPACE {

/// Makes batches of samples of type `Sample`. A program may specialize it for its own type, with these
/// members. This version is for samples of any type.
template <class Sample>
struct Collate {
    using Batch = std::vector<Sample>;  ///< The type of a batch.

    /// Prepares a batch of `count` samples, in the memory of an earlier batch.
    static void begin(Batch& batch, std::size_t count) {
        batch.clear();
        batch.reserve(count);
    }

    /// Writes sample `i` of the batch. The samples are written in order.
    template <class S>
    static void put(Batch& batch, std::size_t i, S&& sample) {
        static_cast<void>(i);
        batch.emplace_back(std::forward<S>(sample));
    }
};

namespace detail {

/// Arithmetic types that are neither bool nor characters: a std::string is no range of numbers.
template <class T>
concept Number = std::is_arithmetic_v<T> && !std::is_same_v<T, bool> && !std::is_same_v<T, char>;

template <class R>
concept NumberRange = std::ranges::contiguous_range<const R> && std::ranges::sized_range<const R> &&
                      Number<std::ranges::range_value_t<const R>>;

template <class Tuple, class Indices>
struct CollateElements;

/// Collates each element of a pair or tuple on its own.
template <class Tuple, std::size_t... I>
struct CollateElements<Tuple, std::index_sequence<I...>> {
    template <std::size_t N>
    using Element = Collate<std::remove_cvref_t<std::tuple_element_t<N, Tuple>>>;
    using Batch = std::tuple<typename Element<I>::Batch...>;

    static void begin(Batch& batch, std::size_t count) {
        (Element<I>::begin(std::get<I>(batch), count), ...);
    }

    template <class S>
    static void put(Batch& batch, std::size_t i, S&& sample) {
        (Element<I>::put(std::get<I>(batch), i, std::get<I>(std::forward<S>(sample))), ...);
    }
};

}  // namespace detail

/// Numbers: a batch is a vector of them.
template <detail::Number T>
struct Collate<T> {
    using Batch = std::vector<T>;  ///< The type of a batch.

    /// Prepares a batch of `count` numbers.
    static void begin(Batch& batch, std::size_t count) { batch.resize(count); }
    /// Writes number `i` of the batch.
    static void put(Batch& batch, std::size_t i, T sample) { batch[i] = sample; }
};

/// Contiguous ranges of numbers, all of one length: a batch is a tensor of shape [n, elements].
template <detail::NumberRange R>
struct Collate<R> {
    using T = std::ranges::range_value_t<const R>;  ///< The type of an element.
    using Batch = Tensor<T>;                        ///< The type of a batch.

    /// Prepares a batch of `count` samples, whose length the first one sets.
    static void begin(Batch& batch, std::size_t count) { batch.resize(std::array{count, std::size_t{0}}); }

    /// Writes sample `i` of the batch. Throws ArgumentError if its length differs from that of the first one.
    static void put(Batch& batch, std::size_t i, const R& sample) {
        const std::span<const T> elements(std::ranges::data(sample), std::ranges::size(sample));
        if (i == 0) batch.resize(std::array{batch.shape()[0], elements.size()});
        const std::size_t expected = batch.shape()[1];
        if (elements.size() != expected)
            throw ArgumentError(detail::text("expected ", expected,
                                             " elements, as in the first sample of the batch, got ",
                                             elements.size()));
        if (expected == 1) {  // faster than a call of memcpy
            batch[i] = elements[0];
        } else {
            std::copy(elements.begin(), elements.end(), batch.data() + i * expected);
        }
    }
};

/// Pairs: a batch is a tuple of the batches of their elements.
template <class A, class B>
struct Collate<std::pair<A, B>> : detail::CollateElements<std::pair<A, B>, std::make_index_sequence<2>> {};

/// Tuples: a batch is a tuple of the batches of their elements.
template <class... T>
struct Collate<std::tuple<T...>>
    : detail::CollateElements<std::tuple<T...>, std::make_index_sequence<sizeof...(T)>> {};

namespace detail {

/// Makes batches with a function of the program, `Batch fn(std::span<Sample>)`.
template <class S, class Fn>
class CollateByFunction {
  public:
    using Sample = S;
    using Batch = std::invoke_result_t<const Fn&, std::span<Sample>>;

    explicit CollateByFunction(Fn fn) : fn_(std::move(fn)) {}

    template <class SampleAt>
    void fill(Batch& batch, std::size_t count, SampleAt&& sample_at) const {
        std::vector<Sample> samples;
        samples.reserve(count);
        for (std::size_t i = 0; i < count; ++i) samples.emplace_back(sample_at(i));
        batch = fn_(std::span<Sample>(samples));
    }

  private:
    Fn fn_;
};

/// Makes batches with Collate<Sample>.
template <class S>
class CollateByType {
  public:
    using Sample = S;
    using Batch = typename Collate<Sample>::Batch;

    template <class SampleAt>
    void fill(Batch& batch, std::size_t count, SampleAt&& sample_at) const {
        Collate<Sample>::begin(batch, count);
        for (std::size_t i = 0; i < count; ++i) Collate<Sample>::put(batch, i, sample_at(i));
    }
};

}  // namespace detail

}  // namespace DPTK_NAMESPACE
