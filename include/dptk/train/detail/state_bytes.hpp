/// Converts a TrainingState to bytes, in which ranks send it to each other.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "dptk/comm/serializer.hpp"
#include "dptk/core/config.hpp"
#include "dptk/core/dtype.hpp"
#include "dptk/train/training_state.hpp"

namespace DPTK_NAMESPACE::detail {

/// A tensor as name, shape, type and elements.
using PackedTensor = std::tuple<std::string, std::vector<std::size_t>, int, std::vector<std::byte>>;
using PackedState = std::tuple<std::vector<PackedTensor>, std::map<std::string, std::string>>;

/// Returns `training` and `values` of the state.
[[nodiscard]] inline std::string to_bytes(const TrainingState& state) {
    PackedState packed;
    for (const StateTensor& tensor : state.training)
        std::get<0>(packed).emplace_back(tensor.name,
                                         std::vector<std::size_t>(tensor.shape.begin(), tensor.shape.end()),
                                         static_cast<int>(tensor.dtype), tensor.bytes);
    std::get<1>(packed) = state.values;
    return Serializer<PackedState>::to_bytes(packed);
}

[[nodiscard]] inline TrainingState state_of_bytes(const std::string& bytes) {
    auto [tensors, values] = Serializer<PackedState>::from_bytes(bytes);
    TrainingState state;
    for (auto& [name, shape, dtype, elements] : tensors)
        state.training.push_back(
            {std::move(name), {shape.begin(), shape.end()}, static_cast<DType>(dtype), std::move(elements)});
    state.values = std::move(values);
    return state;
}

}  // namespace DPTK_NAMESPACE::detail
