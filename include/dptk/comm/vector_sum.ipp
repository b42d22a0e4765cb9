#pragma once

#include "dptk/comm/vector_sum.hpp"

namespace DPTK_NAMESPACE::detail {

DPTK_INLINE void convert_lanes(VectorOf<std::uint32_t, 16>::type& to,
                               const VectorOf<std::uint16_t, 8>::type& from) noexcept {
    to = __builtin_convertvector(from, VectorOf<std::uint32_t, 16>::type);
}

DPTK_INLINE void convert_lanes(VectorOf<std::uint32_t, 32>::type& to,
                               const VectorOf<std::uint16_t, 16>::type& from) noexcept {
    to = __builtin_convertvector(from, VectorOf<std::uint32_t, 32>::type);
}

DPTK_INLINE void convert_lanes(VectorOf<std::uint32_t, 64>::type& to,
                               const VectorOf<std::uint16_t, 32>::type& from) noexcept {
    to = __builtin_convertvector(from, VectorOf<std::uint32_t, 64>::type);
}

DPTK_INLINE void convert_lanes(VectorOf<std::uint16_t, 8>::type& to,
                               const VectorOf<std::uint32_t, 16>::type& from) noexcept {
    to = __builtin_convertvector(from, VectorOf<std::uint16_t, 8>::type);
}

DPTK_INLINE void convert_lanes(VectorOf<std::uint16_t, 16>::type& to,
                               const VectorOf<std::uint32_t, 32>::type& from) noexcept {
    to = __builtin_convertvector(from, VectorOf<std::uint16_t, 16>::type);
}

DPTK_INLINE void convert_lanes(VectorOf<std::uint16_t, 32>::type& to,
                               const VectorOf<std::uint32_t, 64>::type& from) noexcept {
    to = __builtin_convertvector(from, VectorOf<std::uint16_t, 32>::type);
}

DPTK_INLINE void convert_lanes(VectorOf<float, 16>::type& to,
                               const VectorOf<std::int32_t, 16>::type& from) noexcept {
    to = __builtin_convertvector(from, VectorOf<float, 16>::type);
}

DPTK_INLINE void convert_lanes(VectorOf<float, 32>::type& to,
                               const VectorOf<std::int32_t, 32>::type& from) noexcept {
    to = __builtin_convertvector(from, VectorOf<float, 32>::type);
}

DPTK_INLINE void convert_lanes(VectorOf<float, 64>::type& to,
                               const VectorOf<std::int32_t, 64>::type& from) noexcept {
    to = __builtin_convertvector(from, VectorOf<float, 64>::type);
}

}  // namespace DPTK_NAMESPACE::detail
