/// Parameters of C programs: one flat array with a list of sizes, arrays of pointers, or an array of
/// structs with a pointer to values, a pointer to gradients and a size. A table is stored by value and
/// refers to the program's own arrays; the table reads the pointers in these arrays again at each step.
#pragma once

#include <concepts>
#include <cstddef>
#include <functional>
#include <span>
#include <type_traits>
#include <utility>

#include "dptk/core/config.hpp"
#include "dptk/core/detail/text.hpp"
#include "dptk/ddp/parameter_source.hpp"

namespace DPTK_NAMESPACE {

/// A table made by one of the functions below. `Visit` calls fn(value, gradient, size) for each parameter.
template <class Visit>
class PointerTable {
  public:
    /// `visit` is stored and called at each step. The objects that it refers to must outlive the table.
    explicit PointerTable(Visit visit) : visit_(std::move(visit)) {}

    /// Passes each parameter, with its current address, to the sink, under the names "[0]", "[1]", ...
    /// Throws ArgumentError for a size below 0.
    void for_each_parameter(ParameterSink& sink) const {
        std::size_t index = 0;
        visit_([&](auto* value, auto* gradient, std::size_t size) {
            sink(detail::text("[", index++, "]"), std::span(value, size), std::span(gradient, size));
        });
    }

  private:
    Visit visit_;
};

namespace detail {

template <class Visit>
inline constexpr bool is_reference_like<PointerTable<Visit>> = true;

/// Throws ArgumentError for a size below 0.
template <std::integral Size>
[[nodiscard]] std::size_t table_size(Size size) {
    if (std::cmp_less(size, 0))
        throw ArgumentError(text("expected a parameter size of at least 0, got ", size));
    return static_cast<std::size_t>(size);
}

}  // namespace detail

/// Makes a table from one array with all values and one array with all gradients: `flat_table(params,
/// grads, sizes)`. In both arrays, the parameters follow each other. The three arrays must stay at their
/// addresses. Gradients may be of another type than values, here and in the functions below.
template <class Value, class Gradient, std::integral Size>
[[nodiscard]] auto flat_table(Value* values, Gradient* gradients, std::span<const Size> sizes) {
    return PointerTable([=](auto&& fn) {
        std::size_t first = 0;
        for (const Size size : sizes) {
            const std::size_t count = detail::table_size(size);
            fn(values + first, gradients + first, count);
            first += count;
        }
    });
}

/// Makes a table of `count` parameters from arrays of pointers: `pointer_table(values, gradients, sizes,
/// count)`.
template <class Value, class Gradient, std::integral Size>
[[nodiscard]] auto pointer_table(Value* const* values, Gradient* const* gradients, const Size* sizes,
                                 std::size_t count) {
    return PointerTable([=](auto&& fn) {
        for (std::size_t i = 0; i < count; ++i) fn(values[i], gradients[i], detail::table_size(sizes[i]));
    });
}

/// Makes a table of `count` structs: `struct_table(layers, count, &layer::value, &layer::grad, &layer::n)`.
template <class Struct, class Value, class Gradient, std::integral Size>
[[nodiscard]] auto struct_table(Struct* structs, std::size_t count, Value* Struct::*value,
                                Gradient* Struct::*gradient, Size Struct::*size) {
    return PointerTable([=](auto&& fn) {
        for (const Struct& entry : std::span(structs, count))
            fn(entry.*value, entry.*gradient, detail::table_size(entry.*size));
    });
}

}  // namespace DPTK_NAMESPACE
