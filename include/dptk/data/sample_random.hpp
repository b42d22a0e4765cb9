/// SampleRandom, the random numbers of one sample, which depend only on a seed, the epoch and the sample's
/// index, so that they are the same on any number of ranks and workers.
#pragma once

#include <cstddef>
#include <cstdint>

#include "dptk/core/config.hpp"

namespace DPTK_NAMESPACE {

/// A generator of random numbers for one sample in one epoch.
class SampleRandom {
  public:
    /// Makes the generator of sample `index` in an epoch.
    DPTK_HOST_DEVICE SampleRandom(std::uint64_t seed, std::int64_t epoch, std::size_t index) noexcept
        : state_(mixed(mixed(mixed(seed) ^ static_cast<std::uint64_t>(epoch)) ^ index)) {}

    /// Returns the next 64 random bits, by SplitMix64 (https://prng.di.unimi.it/splitmix64.c).
    [[nodiscard]] DPTK_HOST_DEVICE std::uint64_t bits() noexcept {
        state_ += increment;
        return mixed(state_);
    }

    /// Returns a number in [0, 1), a multiple of 2^-53.
    [[nodiscard]] DPTK_HOST_DEVICE double unit() noexcept {
        return static_cast<double>(bits() >> 11) * 0x1p-53;
    }

    /// Returns a number in [low, high).
    [[nodiscard]] double between(double low, double high) noexcept { return low + (high - low) * unit(); }

    /// Returns an integer in [0, count); `count` must be at least 1 and at most 2^32.
    [[nodiscard]] std::size_t below(std::size_t count) noexcept {
        return static_cast<std::size_t>((bits() >> 32) * static_cast<std::uint64_t>(count) >> 32);
    }

  private:
    static constexpr std::uint64_t increment = 0x9e3779b97f4a7c15;

    [[nodiscard]] DPTK_HOST_DEVICE static std::uint64_t mixed(std::uint64_t x) noexcept {
        x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
        x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
        return x ^ (x >> 31);
    }

    std::uint64_t state_;
};

}  // namespace DPTK_NAMESPACE
