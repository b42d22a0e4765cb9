// What the tests of all adapters share.
#pragma once

#include <doctest/doctest.h>
#include <dptk/ddp.hpp>

#include <cstddef>
#include <string>
#include <vector>

#include "support/ranks.hpp"

namespace test {

using Lines = std::vector<std::string>;

/// "name [shape] dtype" of each parameter, and its layout where it is not row-major.
[[nodiscard]] inline Lines described(const dptk::ParameterSource& source) {
    Lines out;
    for (const dptk::ParameterRef& parameter : source.collect()) {
        out.push_back(parameter.name + " " + dptk::detail::shape_text(parameter.shape) + " " +
                      std::string(dptk::dtype_name(parameter.dtype)));
        if (parameter.layout != 0) out.back() += " " + dptk::detail::layout_text(parameter.layout);
    }
    return out;
}

/// What collecting the parameters throws.
[[nodiscard]] inline std::string problem_of(const dptk::ParameterSource& source) {
    std::string text;
    const bool is_argument = throws<dptk::ArgumentError>(text, [&] { static_cast<void>(source.collect()); });
    return is_argument ? text : "none";
}

/// A value of its own for each rank and element.
[[nodiscard]] inline double made_up(int rank, std::size_t element) {
    return 100.0 * (rank + 1) + static_cast<double>(element);
}

/// The mean of made_up over the ranks.
[[nodiscard]] inline double mean_of_made_up(int ranks, std::size_t element) {
    return 50.0 * (ranks + 1) + static_cast<double>(element);
}

}  // namespace test
