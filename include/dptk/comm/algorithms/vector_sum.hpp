/// Vectorized (SIMD) sum of two or more vectors of f32, f64, f16, bf16 or integers; f16 and bf16 are added in
/// f32 and rounded once. Only sums and averages: comm/algorithms/local_reduce.hpp dispatches over all
/// operations and dtypes. Each element is read once from every source, added in the order of the sources,
/// and written once to every result. Elements may be unaligned.
#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <type_traits>

#include "dptk/core/detail/instruction_set.hpp"
#include "dptk/core/float16.hpp"

namespace DPTK_NAMESPACE::detail {

inline namespace DPTK_ARITHMETIC {

/// The type of a vector register, or of half a register. The specializations and convert_lanes are written
/// out because GCC 12 requires the vector size as a literal, and non-dependent types in
/// __builtin_convertvector.
template <class T, std::size_t bytes>
struct VectorOf;
template <class T>
struct VectorOf<T, 8> {
    typedef T type __attribute__((vector_size(8)));
};
template <class T>
struct VectorOf<T, 16> {
    typedef T type __attribute__((vector_size(16)));
};
template <class T>
struct VectorOf<T, 32> {
    typedef T type __attribute__((vector_size(32)));
};
template <class T>
struct VectorOf<T, 64> {
    typedef T type __attribute__((vector_size(64)));
};

[[gnu::always_inline]] inline void convert_lanes(VectorOf<std::uint32_t, 16>::type& to,
                                                 const VectorOf<std::uint16_t, 8>::type& from) noexcept {
    to = __builtin_convertvector(from, VectorOf<std::uint32_t, 16>::type);
}
[[gnu::always_inline]] inline void convert_lanes(VectorOf<std::uint32_t, 32>::type& to,
                                                 const VectorOf<std::uint16_t, 16>::type& from) noexcept {
    to = __builtin_convertvector(from, VectorOf<std::uint32_t, 32>::type);
}
[[gnu::always_inline]] inline void convert_lanes(VectorOf<std::uint32_t, 64>::type& to,
                                                 const VectorOf<std::uint16_t, 32>::type& from) noexcept {
    to = __builtin_convertvector(from, VectorOf<std::uint32_t, 64>::type);
}
[[gnu::always_inline]] inline void convert_lanes(VectorOf<std::uint16_t, 8>::type& to,
                                                 const VectorOf<std::uint32_t, 16>::type& from) noexcept {
    to = __builtin_convertvector(from, VectorOf<std::uint16_t, 8>::type);
}
[[gnu::always_inline]] inline void convert_lanes(VectorOf<std::uint16_t, 16>::type& to,
                                                 const VectorOf<std::uint32_t, 32>::type& from) noexcept {
    to = __builtin_convertvector(from, VectorOf<std::uint16_t, 16>::type);
}
[[gnu::always_inline]] inline void convert_lanes(VectorOf<std::uint16_t, 32>::type& to,
                                                 const VectorOf<std::uint32_t, 64>::type& from) noexcept {
    to = __builtin_convertvector(from, VectorOf<std::uint16_t, 32>::type);
}
[[gnu::always_inline]] inline void convert_lanes(VectorOf<float, 16>::type& to,
                                                 const VectorOf<std::int32_t, 16>::type& from) noexcept {
    to = __builtin_convertvector(from, VectorOf<float, 16>::type);
}
[[gnu::always_inline]] inline void convert_lanes(VectorOf<float, 32>::type& to,
                                                 const VectorOf<std::int32_t, 32>::type& from) noexcept {
    to = __builtin_convertvector(from, VectorOf<float, 32>::type);
}
[[gnu::always_inline]] inline void convert_lanes(VectorOf<float, 64>::type& to,
                                                 const VectorOf<std::int32_t, 64>::type& from) noexcept {
    to = __builtin_convertvector(from, VectorOf<float, 64>::type);
}

/// Loads and stores elements of T in registers of `bytes` bytes.
template <class T, std::size_t bytes>
struct Lanes {
    using Lane = T;
    using Vector = typename VectorOf<T, bytes>::type;

    [[gnu::always_inline]] static inline void load(Vector& to, const void* from) noexcept {
        std::memcpy(&to, from, sizeof to);
    }
    [[gnu::always_inline]] static inline void store(void* to, const Vector& from) noexcept {
        std::memcpy(to, &from, sizeof from);
    }
};

/// Base for f16 and bf16, which have 16 bits in memory and 32 bits (float) in registers.
template <std::size_t bytes>
struct ShortFloatLanes {
    using Lane = float;
    using Vector = typename VectorOf<float, bytes>::type;
    using Bits = typename VectorOf<std::uint32_t, bytes>::type;
    using Mask = typename VectorOf<std::int32_t, bytes>::type;
    using Halves = typename VectorOf<std::uint16_t, bytes / 2>::type;

    [[gnu::always_inline]] static inline void load_bits(Bits& to, const void* from) noexcept {
        Halves halves;
        std::memcpy(&halves, from, sizeof halves);
        convert_lanes(to, halves);
    }
    [[gnu::always_inline]] static inline void store_bits(void* to, const Bits& from) noexcept {
        Halves halves;
        convert_lanes(halves, from);
        std::memcpy(to, &halves, sizeof halves);
    }
    /// Computes to = mask ? from : to.
    [[gnu::always_inline]] static inline void select(Bits& to, const Mask& mask, const Bits& from) noexcept {
        to = (to & ~reinterpret_cast<Bits>(mask)) | (from & reinterpret_cast<Bits>(mask));
    }
    /// Computes to = bits > limit, lane by lane. Both must be below 2^31.
    [[gnu::always_inline]] static inline void is_above(Mask& to, const Bits& bits,
                                                       std::int32_t limit) noexcept {
        to = reinterpret_cast<Mask>(bits) > limit;
    }
};

/// Does the conversions of core/float16.hpp lane by lane.
template <std::size_t bytes>
struct Lanes<bfloat16, bytes> : ShortFloatLanes<bytes> {
    using Base = ShortFloatLanes<bytes>;
    using typename Base::Bits;
    using typename Base::Mask;
    using typename Base::Vector;
    [[gnu::always_inline]] static inline void load(Vector& to, const void* from) noexcept {
        Bits bits;
        Base::load_bits(bits, from);
        bits <<= 16;
        to = reinterpret_cast<Vector>(bits);
    }
    [[gnu::always_inline]] static inline void store(void* to, const Vector& from) noexcept {
        const Bits bits = reinterpret_cast<Bits>(from);
        const Bits magnitude = bits & 0x7fff'ffffU;
        Mask nan;
        Base::is_above(nan, magnitude, 0x7f80'0000);
        Bits out = (bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16;
        Base::select(out, nan, (bits >> 16) | 0x40U);
        Base::store_bits(to, out);
    }
};

template <std::size_t bytes>
struct Lanes<float16, bytes> : ShortFloatLanes<bytes> {
    using Base = ShortFloatLanes<bytes>;
    using typename Base::Bits;
    using typename Base::Mask;
    using typename Base::Vector;
    [[gnu::always_inline]] static inline void load(Vector& to, const void* from) noexcept {
        Bits bits;
        Base::load_bits(bits, from);
        const Bits magnitude = bits & 0x7fffU;
        Vector tiny;
        convert_lanes(tiny, reinterpret_cast<Mask>(magnitude));
        tiny *= 0x1p-24F;
        Bits out = reinterpret_cast<Bits>(tiny);
        Mask where;
        Base::is_above(where, magnitude, 0x3ff);
        Base::select(out, where, (magnitude << 13) + 0x3800'0000U);
        Base::is_above(where, magnitude, 0x7bff);
        Base::select(out, where, (magnitude << 13) | 0x7f80'0000U);
        out |= (bits & 0x8000U) << 16;
        to = reinterpret_cast<Vector>(out);
    }
    [[gnu::always_inline]] static inline void store(void* to, const Vector& from) noexcept {
        const Bits bits = reinterpret_cast<Bits>(from);
        const Bits magnitude = bits & 0x7fff'ffffU;
        // For values below the smallest normal f16, 2^-14, adding 0.5 in float shifts and rounds the
        // mantissa bits. Larger values are set to 0 here, since they would overflow.
        Mask where;
        Base::is_above(where, magnitude, 0x387f'ffff);
        Bits small = magnitude;
        Base::select(small, where, Bits{});
        const Vector shifted = reinterpret_cast<Vector>(small) + 0.5F;
        Bits out = reinterpret_cast<Bits>(shifted) - 0x3f00'0000U;
        Base::select(out, where, (magnitude - 0x3800'0000U + 0xfffU + ((magnitude >> 13) & 1U)) >> 13);
        Base::is_above(where, magnitude, 0x477f'ffff);
        Base::select(out, where, (Bits{} + 0x7c00U));
        Base::is_above(where, magnitude, 0x7f80'0000);
        Base::select(out, where, (Bits{} + 0x7e00U));
        Base::store_bits(to, out | ((bits >> 16) & 0x8000U));
    }
};

/// A sum of several buffers: results[k][i] = (sources[0][i] + sources[1][i] + ...) / divisor. Only
/// floating-point sums are divided. A result may be a source; other overlaps are not allowed.
struct VectorSum {
    std::span<const void* const> sources;
    std::span<void* const> results;
    std::size_t count = 0;
    double divisor = 1;
};

/// The loop over elements of type In in the sources and Out in the results.
template <class In, class Out, std::size_t vector_bytes>
class VectorLoop {
    using From = Lanes<In, vector_bytes>;
    using To = Lanes<Out, vector_bytes>;
    using Lane = typename From::Lane;
    using Vector = typename From::Vector;
    static constexpr std::size_t lanes = vector_bytes / sizeof(Lane);
    static_assert(std::same_as<Lane, typename To::Lane>);

  public:
    /// Unrolls by four registers, so that their loads overlap.
    [[gnu::always_inline]] static inline void run(const VectorSum& job) noexcept {
        const Division division(job.divisor);
        std::size_t i = 0;
        for (; i + 4 * lanes <= job.count; i += 4 * lanes) {
            Vector a, b, c, d;
            load(a, b, c, d, job.sources[0], i);
            for (const void* source : job.sources.subspan(1)) {
                Vector e, f, g, h;
                load(e, f, g, h, source, i);
                a += e;
                b += f;
                c += g;
                d += h;
            }
            division.apply(a);
            division.apply(b);
            division.apply(c);
            division.apply(d);
            for (void* result : job.results) {
                To::store(at<Out>(result, i), a);
                To::store(at<Out>(result, i + lanes), b);
                To::store(at<Out>(result, i + 2 * lanes), c);
                To::store(at<Out>(result, i + 3 * lanes), d);
            }
        }
        if constexpr (sizeof(In) == sizeof(Lane) && sizeof(Out) == sizeof(Lane)) {
            constexpr std::size_t few = 4;  // not worth a copy into a register
            if (job.count - i <= few) {
                for (; i < job.count; ++i) run_one(job, division, i);
                return;
            }
        }
        for (; i < job.count; i += lanes) run_partial(job, division, i, std::min(lanes, job.count - i));
    }

  private:
    /// Divides the sum by the divisor. If the divisor is a power of two, as most world sizes are, multiplies
    /// by the reciprocal, which gives bitwise the same result.
    struct Division {
        explicit Division(double divisor_) : divides(divisor_ != 1) {
            if (!divides) return;
            divisor = static_cast<Lane>(divisor_);
            factor = static_cast<Lane>(1 / divisor_);
            const auto whole = static_cast<std::uint64_t>(divisor_);
            multiplies = (whole & (whole - 1)) == 0;
        }

        template <class Sum>
        [[gnu::always_inline]] inline void apply(Sum& sum) const noexcept {
            if constexpr (std::floating_point<Lane>) {
                if (!divides) return;
                if (multiplies) {
                    sum *= factor;
                } else {
                    sum /= divisor;
                }
            }
        }

        bool divides;
        bool multiplies = false;
        Lane divisor = 1;
        Lane factor = 1;
    };

    template <class T, class Data>
    [[gnu::always_inline]] static inline auto* at(Data* data, std::size_t i) noexcept {
        using Byte = std::conditional_t<std::is_const_v<Data>, const std::byte, std::byte>;
        return static_cast<Byte*>(data) + i * sizeof(T);
    }

    [[gnu::always_inline]] static inline void load(Vector& a, Vector& b, Vector& c, Vector& d,
                                                   const void* from, std::size_t i) noexcept {
        From::load(a, at<In>(from, i));
        From::load(b, at<In>(from, i + lanes));
        From::load(c, at<In>(from, i + 2 * lanes));
        From::load(d, at<In>(from, i + 3 * lanes));
    }

    [[gnu::always_inline]] static inline void run_one(const VectorSum& job, const Division& division,
                                                      std::size_t i) noexcept {
        Lane sum;
        std::memcpy(&sum, at<In>(job.sources[0], i), sizeof sum);
        for (const void* source : job.sources.subspan(1)) {
            Lane part;
            std::memcpy(&part, at<In>(source, i), sizeof part);
            sum = static_cast<Lane>(sum + part);
        }
        division.apply(sum);
        for (void* result : job.results) std::memcpy(at<Out>(result, i), &sum, sizeof sum);
    }

    /// Sums `count` elements, at most one register, in a register padded with zeros.
    [[gnu::always_inline]] static inline void run_partial(const VectorSum& job, const Division& division,
                                                          std::size_t i, std::size_t count) noexcept {
        alignas(vector_bytes) std::byte bytes[vector_bytes] = {};
        Vector sum;
        std::memcpy(bytes, at<In>(job.sources[0], i), count * sizeof(In));
        From::load(sum, bytes);
        for (const void* source : job.sources.subspan(1)) {
            Vector part;
            std::memcpy(bytes, at<In>(source, i), count * sizeof(In));
            From::load(part, bytes);
            sum += part;
        }
        division.apply(sum);
        To::store(bytes, sum);
        for (void* result : job.results) std::memcpy(at<Out>(result, i), bytes, count * sizeof(Out));
    }
};

#ifdef __AVX512BW__
inline constexpr std::size_t baseline_vector_bytes = 64;
#else
inline constexpr std::size_t baseline_vector_bytes = 16;
#endif

// Runtime dispatch: most programs are compiled for an older CPU than the one on which they run.
#if defined(__x86_64__) && !defined(__AVX512BW__)
template <class In, class Out>
[[gnu::target("avx512f,avx512bw,avx512dq,avx512vl")]] void sum_vectors_avx512(const VectorSum& job) noexcept {
    VectorLoop<In, Out, 64>::run(job);
}
template <class In, class Out>
[[gnu::target("avx2")]] void sum_vectors_avx2(const VectorSum& job) noexcept {
    VectorLoop<In, Out, 32>::run(job);
}

[[nodiscard]] inline InstructionSet instruction_set() noexcept {
    static const InstructionSet chosen = [] {
        const bool avx512 = __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
                            __builtin_cpu_supports("avx512vl");
        const InstructionSet best = avx512                           ? InstructionSet::avx512
                                    : __builtin_cpu_supports("avx2") ? InstructionSet::avx2
                                                                     : InstructionSet::baseline;
        return std::min(best, instruction_limit());
    }();
    return chosen;
}
#endif

/// Computes the sum. Floating-point sums use the best instruction set of the CPU, chosen at run time, that
/// DPTK_MAX_CPU_ISA allows.
template <class In, class Out = In>
void sum_vectors(const VectorSum& job) noexcept {
#if defined(__x86_64__) && !defined(__AVX512BW__)
    if constexpr (!std::integral<In>) {
        if (instruction_set() == InstructionSet::avx512) return sum_vectors_avx512<In, Out>(job);
        if (instruction_set() == InstructionSet::avx2) return sum_vectors_avx2<In, Out>(job);
    }
#endif
    VectorLoop<In, Out, baseline_vector_bytes>::run(job);
}

}  // namespace DPTK_ARITHMETIC

}  // namespace DPTK_NAMESPACE::detail
