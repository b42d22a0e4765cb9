// A task that is learned within a second: whether a point lies inside a circle.
#pragma once

#include <dptk/nn/graph.hpp>

#include <cmath>
#include <cstddef>
#include <utility>
#include <vector>

using Points = std::vector<std::pair<std::vector<float>, int>>;

/// Returns `count` points of a sequence that fills the square, from point `first` on.
inline Points circle_points(std::size_t first, std::size_t count) {
    Points points;
    for (std::size_t i = first; i < first + count; ++i) {
        const float x = 2.0F * std::fmod(0.618034F * static_cast<float>(i), 1.0F) - 1.0F;
        const float y = 2.0F * std::fmod(0.754878F * static_cast<float>(i), 1.0F) - 1.0F;
        points.push_back({{x, y}, x * x + y * y < 0.5F ? 1 : 0});
    }
    return points;
}

inline dptk::nn::Graph circle_net() {
    return dptk::nn::sequential({2}, {dptk::nn::Linear{16}, dptk::nn::ReLU{}, dptk::nn::Linear{2}});
}
