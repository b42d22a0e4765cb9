/// make_model_for(), which makes a network for a file of weights. Inline, so that the compiled library of
/// weights does not need that of networks.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "dptk/core/config.hpp"
#include "dptk/core/detail/text.hpp"
#include "dptk/core/error.hpp"
#include "dptk/core/tensor.hpp"
#include "dptk/nn/graph.hpp"
#include "dptk/nn/models.hpp"
#include "dptk/weights/safetensors.hpp"

namespace DPTK_NAMESPACE {

/// As nn::make_model(), with the stem that the first convolution of the file has, so that weights for large
/// images can be used with small ones, and the reverse. Throws ArgumentError if that convolution has a size
/// that no stem of the model has.
[[nodiscard]] inline nn::Graph make_model_for(const SafetensorsFile& file, std::string_view model,
                                              nn::ModelOptions options) {
    std::string problem;
    const nn::Stem other = options.stem == nn::Stem::large ? nn::Stem::small : nn::Stem::large;
    for (const nn::Stem stem : {options.stem, other}) {
        options.stem = stem;
        nn::Graph graph = nn::make_model(model, options);
        const std::vector<nn::ParameterSpec> parameters = graph.parameters();
        const SafetensorsEntry* entry = file.find(parameters.front().name);
        if (entry == nullptr) entry = file.find("module." + parameters.front().name);
        const Shape& shape = parameters.front().shape;
        const auto is_kernel = [](const auto& sizes) { return sizes.size() == 4; };
        if (entry == nullptr || !is_kernel(shape) || !is_kernel(entry->shape) || entry->shape[2] == shape[2])
            return graph;
        if (problem.empty())
            problem = detail::text(file.path().string(), ": ", parameters.front().name, ": expected ",
                                   detail::shape_text(shape), ", as the first layer of ", model, ", found ",
                                   detail::shape_text(entry->shape));
    }
    throw ArgumentError(problem);
}

}  // namespace DPTK_NAMESPACE
