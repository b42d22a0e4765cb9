/// ParameterSource finds a program's parameters and gradients and re-reads their addresses at each step, so
/// that containers may reallocate between steps.
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

/// Whether a copy of a T refers to the same elements as the original. This holds for spans and other
/// borrowed ranges, views of device memory, and tuples of references or views.
template <class T>
inline constexpr bool is_reference_like = std::is_lvalue_reference_v<T> || std::ranges::borrowed_range<T>;

template <class T>
inline constexpr bool is_reference_like<DeviceSpan<T>> = true;

template <class... T>
inline constexpr bool is_reference_like<std::tuple<T...>> = (is_reference_like<T> && ...);

template <class A, class B>
inline constexpr bool is_reference_like<std::pair<A, B>> = is_reference_like<A> && is_reference_like<B>;

/// Whether T is a view type of which a const container returns a `const T` and a mutable container a T, so
/// that a const object of type T is a view of a const container. Adapters specialize this variable.
template <class T>
inline constexpr bool is_const_of_const = false;

/// Makes a function that visits the parameters of a container. The function captures a view by value, and
/// any other container by reference.
template <class Container>
[[nodiscard]] std::function<void(ParameterSink&)> visitor_of(Container&& container) {
    using C = std::remove_cvref_t<Container>;
    if constexpr (is_reference_like<C>) {
        static_assert(
            !std::is_const_v<Container> || !is_const_of_const<C>,
            "dptk: a view of a const container cannot receive rank 0's values or the averaged gradients");
        return [view = C(std::forward<Container>(container))](ParameterSink& sink) mutable {
            for_each_parameter(view, sink);
        };
    } else {
        static_assert(
            std::is_lvalue_reference_v<Container>,
            "dptk: an owning temporary would be gone before the first step; keep the container in a "
            "variable that outlives the training, and pass that");
        static_assert(!std::is_const_v<std::remove_reference_t<Container>>,
                      "dptk: a const container cannot receive rank 0's values or the averaged gradients");
        return [&container](ParameterSink& sink) { for_each_parameter(container, sink); };
    }
}

}  // namespace detail

/// Finds the parameters and gradients of a model in each step. DistributedDataParallel and similar classes
/// make a ParameterSource from a model, or from values and gradients. A program makes one itself to pass
/// replicas of several types to DataParallel, or a model to ReproducibleDataParallel. A ParameterSource
/// holds references to containers, and views by value, but neither elements nor addresses. A copy of a
/// ParameterSource refers to the same containers. ddp/parameters.hpp lists the supported containers. No
/// call is collective.
class ParameterSource {
  public:
    /// Accepts a model, or a container of pairs of value and gradient. An owning container is kept by
    /// reference and must outlive this object; a span or a tuple of references is kept by value. Owning
    /// temporaries and const containers do not compile. Parameters are not read before collect().
    template <class Model>
        requires(!std::same_as<std::remove_cvref_t<Model>, ParameterSource>)
    explicit ParameterSource(Model&& model) : values_(detail::visitor_of(std::forward<Model>(model))) {}

    /// Accepts values and gradients in two containers of the same structure. The first value that is found
    /// belongs to the first gradient that is found, and so on. Names are taken from the container of
    /// values; if both containers have names, such as the keys of maps, these must be equal.
    template <class Values, class Gradients>
    ParameterSource(Values&& values, Gradients&& gradients)
        : values_(detail::visitor_of(std::forward<Values>(values))),
          gradients_(detail::visitor_of(std::forward<Gradients>(gradients))) {}

    /// Returns all parameters, always in the same order, with their current addresses, which are valid
    /// until a container moves its memory. Throws ArgumentError if a parameter has no gradient; if its
    /// gradient differs in size, shape, order of elements or device; if the value or the gradient is not of a
    /// floating-point type; or if the parameter is on a device and the program has no device support. Also
    /// throws what the program's own for_each_parameter throws.
    [[nodiscard]] std::vector<ParameterRef> collect() const;

    /// Reads the current addresses of parameters that collect() has returned, and writes them to `now`.
    /// Returns false if anything else may have changed since the first call, such as a size: collect() then
    /// finds the parameters as they are. Does not compare names. Replaces the functions
    /// ParameterRef::lazy_gradient of `known`. Allocates no memory after the first call, except in the
    /// containers' own code.
    [[nodiscard]] bool read_again(std::vector<ParameterRef>& known,
                                  std::vector<detail::ParameterAddresses>& now);

  private:
    using Visitor = ParameterSink::Visitor;

    [[nodiscard]] static std::vector<ParameterRef> visit(const Visitor& visitor);

    static void check(const ParameterRef& parameter);

    static void check_names(const std::vector<ParameterRef>& values,
                            const std::vector<ParameterRef>& gradients);

    static void attach(std::vector<ParameterRef>& values, const std::vector<ParameterRef>& gradients);

    Visitor values_;
    Visitor gradients_;
    ParameterSink again_;  // for read_again(), which reuses its memory
};

}  // namespace DPTK_NAMESPACE

#ifndef DPTK_SEPARATE_COMPILATION
#include "dptk/ddp/parameter_source.ipp"
#endif
