#pragma once

#include "dptk/core/detail/siphash.hpp"

#include <bit>
#include <cstddef>

namespace DPTK_NAMESPACE::detail {

/// The state of a SipHash computation.
class SipState {
  public:
    explicit SipState(const Word128& key) noexcept
        : v0_(key[0] ^ 0x736f6d6570736575U),
          v1_(key[1] ^ 0x646f72616e646f6dU ^ 0xee),
          v2_(key[0] ^ 0x6c7967656e657261U),
          v3_(key[1] ^ 0x7465646279746573U) {}

    void add(std::uint64_t word) noexcept {
        v3_ ^= word;
        rounds(2);
        v0_ ^= word;
    }

    [[nodiscard]] Word128 finish() noexcept {
        v2_ ^= 0xee;
        rounds(4);
        const std::uint64_t first = v0_ ^ v1_ ^ v2_ ^ v3_;
        v1_ ^= 0xdd;
        rounds(4);
        return {first, v0_ ^ v1_ ^ v2_ ^ v3_};
    }

  private:
    void rounds(int count) noexcept {
        for (int i = 0; i < count; ++i) {
            v0_ += v1_;
            v1_ = std::rotl(v1_, 13) ^ v0_;
            v0_ = std::rotl(v0_, 32);
            v2_ += v3_;
            v3_ = std::rotl(v3_, 16) ^ v2_;
            v0_ += v3_;
            v3_ = std::rotl(v3_, 21) ^ v0_;
            v2_ += v1_;
            v1_ = std::rotl(v1_, 17) ^ v2_;
            v2_ = std::rotl(v2_, 32);
        }
    }

    std::uint64_t v0_;
    std::uint64_t v1_;
    std::uint64_t v2_;
    std::uint64_t v3_;
};

DPTK_INLINE Word128 siphash(const Word128& key, std::string_view bytes) noexcept {
    constexpr std::size_t word_bytes = 8;
    SipState state(key);
    // The last word holds the remaining bytes and, in its highest byte, the length.
    const std::size_t words = bytes.size() / word_bytes + 1;
    for (std::size_t word = 0; word < words; ++word) {
        std::uint64_t value = 0;
        for (std::size_t i = 0; i < word_bytes && word * word_bytes + i < bytes.size(); ++i)
            value |= std::uint64_t{static_cast<unsigned char>(bytes[word * word_bytes + i])} << (8 * i);
        if (word + 1 == words) value |= static_cast<std::uint64_t>(bytes.size()) << 56;
        state.add(value);
    }
    return state.finish();
}

}  // namespace DPTK_NAMESPACE::detail
