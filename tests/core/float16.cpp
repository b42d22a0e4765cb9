// Tests every value of the 16-bit formats against the definition of their bits.
#include <doctest/doctest.h>
#include <dptk/core/float16.hpp>

#ifdef __SSE__
#include <xmmintrin.h>
#endif

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

namespace {

/// Returns the value that IEEE 754 defines for sign, exponent and fraction of these widths.
double value_of(std::uint16_t bits, int fraction_bits) {
    const int exponent_bits = 15 - fraction_bits;
    const int bias = (1 << (exponent_bits - 1)) - 1;
    const int exponent = (bits >> fraction_bits) & ((1 << exponent_bits) - 1);
    const int fraction = bits & ((1 << fraction_bits) - 1);
    const double sign = (bits & 0x8000) != 0 ? -1 : 1;
    if (exponent == (1 << exponent_bits) - 1)
        return fraction == 0 ? sign * std::numeric_limits<double>::infinity()
                             : std::numeric_limits<double>::quiet_NaN();
    if (exponent == 0) return sign * std::ldexp(fraction, 1 - bias - fraction_bits);
    return sign * std::ldexp(fraction + (1 << fraction_bits), exponent - bias - fraction_bits);
}

/// Returns how many values convert to a wrong float, or do not convert back to themselves.
template <class T>
int count_wrong(int fraction_bits) {
    int wrong = 0;
    for (std::uint32_t bits = 0; bits <= 0xffff; ++bits) {
        T number;
        number.bits = static_cast<std::uint16_t>(bits);
        const auto found = static_cast<float>(number);
        const double expected = value_of(number.bits, fraction_bits);
        if (std::isnan(expected)) {
            wrong += !std::isnan(found) || !std::isnan(static_cast<float>(T(found)));
        } else {
            wrong += std::bit_cast<std::uint32_t>(found) !=
                     std::bit_cast<std::uint32_t>(static_cast<float>(expected));
            wrong += T(found).bits != number.bits;
        }
    }
    return wrong;
}

/// Returns how many numbers between neighbors are not rounded to the nearer one, ties to even.
template <class T>
int count_wrongly_rounded(std::uint16_t largest) {
    int wrong = 0;
    for (std::uint16_t low = 0; low < largest; ++low) {
        T below;
        T above;
        below.bits = low;
        above.bits = static_cast<std::uint16_t>(low + 1);
        const auto a = static_cast<float>(below);
        const auto b = static_cast<float>(above);
        const float middle = a + (b - a) / 2;
        wrong += T(middle).bits != (low % 2 == 0 ? below : above).bits;
        wrong += T(std::nextafter(middle, 0.0F)).bits != below.bits;
        wrong += T(std::nextafter(middle, b)).bits != above.bits;
        wrong += T(-middle).bits != ((low % 2 == 0 ? below : above).bits | 0x8000);
    }
    return wrong;
}

}  // namespace

TEST_CASE("every float16 converts to the float that its bits define, and back") {
    CHECK(count_wrong<dptk::float16>(10) == 0);
}

TEST_CASE("every bfloat16 converts to the float that its bits define, and back") {
    CHECK(count_wrong<dptk::bfloat16>(7) == 0);
}

TEST_CASE("floats are rounded to the nearest float16, ties to even") {
    CHECK(count_wrongly_rounded<dptk::float16>(0x7bff) == 0);
    CHECK(dptk::float16(65519.0F).bits == 0x7bff);
    CHECK(dptk::float16(65520.0F).bits == 0x7c00);
    CHECK(dptk::float16(std::numeric_limits<float>::max()).bits == 0x7c00);
    CHECK(dptk::float16(0x1p-26F).bits == 0);
}

TEST_CASE("floats are rounded to the nearest bfloat16, ties to even") {
    CHECK(count_wrongly_rounded<dptk::bfloat16>(0x7f7f) == 0);
    CHECK(dptk::bfloat16(std::numeric_limits<float>::max()).bits == 0x7f80);
}

#ifdef __SSE__
TEST_CASE("a float16 below the smallest normal is preserved if subnormal floats are flushed to zero") {
    const unsigned before = _mm_getcsr();
    _mm_setcsr(before | 0x8040);  // flush to zero, denormals are zero
    volatile std::uint16_t bits = 0x0200;
    dptk::float16 number;
    number.bits = bits;
    const auto found = static_cast<float>(number);
    const dptk::float16 back(found);
    _mm_setcsr(before);
    CHECK(found == 0x1p-15F);
    CHECK(back.bits == 0x0200);
}
#endif
