/// Remembers where a program keeps its parameters and gradients, and reads their addresses anew at each step,
/// so that containers may move their memory between steps.
#pragma once

#include <concepts>
#include <functional>
#include <ranges>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "dptk/core/config.hpp"
#include "dptk/ddp/parameters.hpp"

namespace DPTK_NAMESPACE {

namespace detail {

/// Whether a copy refers to the same elements: spans and other borrowed ranges, views of device memory,
/// tuples of references or views.
template <class T>
inline constexpr bool is_reference_like = std::is_lvalue_reference_v<T> || std::ranges::borrowed_range<T>;

template <class T>
inline constexpr bool is_reference_like<DeviceSpan<T>> = true;

template <class... T>
inline constexpr bool is_reference_like<std::tuple<T...>> = (is_reference_like<T> && ...);

template <class A, class B>
inline constexpr bool is_reference_like<std::pair<A, B>> = is_reference_like<A> && is_reference_like<B>;

/// Whether a const container returns such a view as well, and only its being const tells it from another one.
template <class T>
inline constexpr bool is_const_of_const = false;

/// A visitor of one container: by reference where it owns its elements, by value where it only refers to
/// them.
template <class Container>
[[nodiscard]] std::function<void(ParameterSink&)> visitor_of(Container&& container) {
    using C = std::remove_cvref_t<Container>;
    if constexpr (is_reference_like<C>) {
        static_assert(
            !std::is_const_v<Container> || !is_const_of_const<C>,
            "dptk: a view of a const container cannot take rank 0's values or the averaged gradients");
        return [view = C(std::forward<Container>(container))](ParameterSink& sink) mutable {
            for_each_parameter(view, sink);
        };
    } else {
        static_assert(
            std::is_lvalue_reference_v<Container>,
            "dptk: an owning temporary would be gone before the first step; keep the container in a "
            "variable that outlives the training, and pass that");
        static_assert(!std::is_const_v<std::remove_reference_t<Container>>,
                      "dptk: a const container cannot take rank 0's values or the averaged gradients");
        return [&container](ParameterSink& sink) { for_each_parameter(container, sink); };
    }
}

}  // namespace detail

/// What DistributedDataParallel and its like make of a model, or of values and gradients, to find these again
/// in each step. A program makes one itself to give replicas of several types to DataParallel, or a model to
/// ReproducibleDataParallel. It keeps references to containers and copies of views, but no elements and no
/// addresses; a copy refers to the same containers. What it may be made of: ddp/parameters.hpp. Nothing here
/// is collective.
class ParameterSource {
  public:
    /// A model, or a container of pairs, that tells values and gradients together. An owning container is
    /// kept by reference and must outlive this; a span or a tuple of references is kept by value. An owning
    /// temporary and a const container do not compile. Parameters are not looked at before collect().
    template <class Model>
        requires(!std::same_as<std::remove_cvref_t<Model>, ParameterSource>)
    explicit ParameterSource(Model&& model) : values_(detail::visitor_of(std::forward<Model>(model))) {}

    /// Values and gradients in two containers of the same structure, each kept as above: the first parameter
    /// found in one belongs to the first in the other, and so on. Names are those of the values.
    template <class Values, class Gradients>
    ParameterSource(Values&& values, Gradients&& gradients)
        : values_(detail::visitor_of(std::forward<Values>(values))),
          gradients_(detail::visitor_of(std::forward<Gradients>(gradients))) {}

    /// All parameters, always in the same order, with the addresses of this moment: they hold until a
    /// container moves its memory. Throws ArgumentError where a parameter has no gradient and makes none, or
    /// one of another type, size, shape, order of elements or device, is not of a floating-point type, or is
    /// on a device where the program serves none; and what the program's own for_each_parameter throws.
    [[nodiscard]] std::vector<ParameterRef> collect() const;

  private:
    using Visitor = std::function<void(ParameterSink&)>;

    [[nodiscard]] static std::vector<ParameterRef> visit(const Visitor& visitor);

    static void check(const ParameterRef& parameter);

    static void attach(std::vector<ParameterRef>& values, const std::vector<ParameterRef>& gradients);

    Visitor values_;
    Visitor gradients_;
};

}  // namespace DPTK_NAMESPACE

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/ddp/parameter_source.ipp"
#endif
