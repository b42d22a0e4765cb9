// Helpers of the tests of all adapters.
#pragma once

#include <doctest/doctest.h>
#include <dptk/ddp.hpp>

#include <cstddef>
#include <string>
#include <vector>

#include "support/ranks.hpp"

namespace test {

using Lines = std::vector<std::string>;

/// Returns "name [shape] dtype" for each parameter, and its layout if it is not row-major.
[[nodiscard]] inline Lines described(const dptk::ParameterSource& source) {
    Lines out;
    for (const dptk::ParameterRef& parameter : source.collect()) {
        out.push_back(parameter.name + " " + dptk::detail::shape_text(parameter.shape) + " " +
                      std::string(dptk::dtype_name(parameter.dtype)));
        if (parameter.layout != 0) out.back() += " " + dptk::detail::layout_text(parameter.layout);
    }
    return out;
}

/// Returns the text of the exception that collecting the parameters throws.
[[nodiscard]] inline std::string problem_of(const dptk::ParameterSource& source) {
    std::string text;
    const bool is_argument = throws<dptk::ArgumentError>(text, [&] { static_cast<void>(source.collect()); });
    return is_argument ? text : "none";
}

/// Returns a value that differs between ranks and elements.
[[nodiscard]] inline double made_up(int rank, std::size_t element) {
    return 100.0 * (rank + 1) + static_cast<double>(element);
}

/// Returns the mean of made_up() over the ranks.
[[nodiscard]] inline double mean_of_made_up(int ranks, std::size_t element) {
    return 50.0 * (ranks + 1) + static_cast<double>(element);
}

}  // namespace test
