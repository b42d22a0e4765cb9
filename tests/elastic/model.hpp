/// A small model, and how its samples are distributed.
#pragma once

#include <dptk/data/distributed_sampler.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

namespace elastic {

inline constexpr std::size_t samples = 1000;
inline constexpr std::size_t batch_size = 4;
inline constexpr dptk::DistributedSamplerOptions sampling{.seed = 5, .padding = dptk::Padding::none};

/// A model whose gradients depend on its values and on each sample of the batch.
struct Model {
    std::vector<float> values = std::vector<float>(300, 0.5F);
    std::vector<float> gradients = std::vector<float>(300);

    void compute(std::span<const std::size_t> batch) {
        for (std::size_t i = 0; i < values.size(); ++i) {
            float sum = 0;
            for (const std::size_t sample : batch)
                sum += values[i] * static_cast<float>((sample * 7 + i * 3) % 11) / 20 -
                       static_cast<float>((sample + i) % 5) / 9;
            gradients[i] = batch.empty() ? 0 : sum / static_cast<float>(batch.size());
        }
    }

    [[nodiscard]] std::uint64_t hash() const {
        std::uint64_t out = 14695981039346656037U;
        for (const float value : values) {
            std::uint32_t bits = 0;
            std::memcpy(&bits, &value, sizeof bits);
            out = (out ^ bits) * 1099511628211U;
        }
        return out;
    }
};

}  // namespace elastic
