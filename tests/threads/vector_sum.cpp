// SIMD sums compared with element-wise sums, for lengths around the register sizes, unaligned, with each
// instruction set that this CPU supports.
#include <doctest/doctest.h>
#include <dptk/comm/algorithms/local_reduce.hpp>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace {

using dptk::bfloat16;
using dptk::float16;
using dptk::detail::VectorSum;

using Loop = void (*)(const VectorSum&);

template <class T>
T random_element(std::mt19937& random) {
    if constexpr (std::is_integral_v<T>) {
        return static_cast<T>(random());
    } else {
        return static_cast<T>(
            std::ldexp(static_cast<float>(random() % 20001) - 10000.0F, static_cast<int>(random() % 8) - 14));
    }
}

template <class In, class Out>
void check_loop(const std::string& name, Loop loop) {
    using Wide = typename dptk::detail::Arithmetic<In>::type;
    CAPTURE(name);
    std::mt19937 random(7);
    for (std::size_t count = 0; count < 300; count += count < 70 ? 1 : 23) {
        for (const std::size_t sources : {1U, 2U, 3U, 5U}) {
            for (const double divisor : {1.0, 2.0, 3.0, 4.0}) {
                if (std::is_integral_v<In> && divisor != 1) continue;
                const std::size_t offset = count % 3;  // in bytes: elements may be unaligned
                std::vector<std::vector<std::byte>> inputs;
                std::vector<const void*> from;
                for (std::size_t s = 0; s < sources; ++s) {
                    auto& memory = inputs.emplace_back(count * sizeof(In) + offset + 1);
                    for (std::size_t i = 0; i < count; ++i)
                        dptk::detail::store<In>(memory.data() + offset, i, random_element<In>(random));
                }
                for (auto& memory : inputs) from.push_back(memory.data() + offset);
                std::vector<std::vector<std::byte>> outputs(
                    2, std::vector<std::byte>(count * sizeof(Out) + offset + 1, std::byte{0x5a}));
                std::vector<void*> to;
                for (auto& memory : outputs) to.push_back(memory.data() + offset);
                loop({from, to, count, divisor});
                bool equal = true;
                for (std::size_t i = 0; i < count; ++i) {
                    Wide sum = static_cast<Wide>(dptk::detail::load<In>(from[0], i));
                    for (std::size_t s = 1; s < sources; ++s)
                        sum += static_cast<Wide>(dptk::detail::load<In>(from[s], i));
                    if (divisor != 1) sum /= static_cast<Wide>(divisor);
                    const Out expected = static_cast<Out>(sum);
                    for (const void* result : to) {
                        const Out found = dptk::detail::load<Out>(result, i);
                        equal = equal && std::memcmp(&found, &expected, sizeof(Out)) == 0;
                    }
                }
                CHECK_MESSAGE(equal, count, " elements of ", sources, " sources, divided by ", divisor);
                for (const auto& memory : outputs) CHECK(memory.back() == std::byte{0x5a});
            }
        }
    }
}

template <class In, class Out = In>
void check_loops(const std::string& name) {
    check_loop<In, Out>(name, [](const VectorSum& sum) { dptk::detail::sum_vectors<In, Out>(sum); });
    check_loop<In, Out>(name + " in 16 bytes",
                        [](const VectorSum& sum) { dptk::detail::VectorLoop<In, Out, 16>::run(sum); });
    check_loop<In, Out>(name + " in 32 bytes",
                        [](const VectorSum& sum) { dptk::detail::VectorLoop<In, Out, 32>::run(sum); });
#if defined(__x86_64__) && !defined(__AVX512BW__)
    if constexpr (std::is_same_v<In, Out> && !std::is_integral_v<In>) {
        if (__builtin_cpu_supports("avx2"))
            check_loop<In, Out>(name + " by AVX2", dptk::detail::sum_vectors_avx2<In, Out>);
    }
#endif
}

}  // namespace

TEST_CASE("vector loops sum as loops over elements do") {
    check_loops<std::uint8_t>("u8");
    check_loops<std::uint16_t>("u16");
    check_loops<std::uint32_t>("u32");
    check_loops<std::uint64_t>("u64");
    check_loops<float>("f32");
    check_loops<double>("f64");
    check_loops<float16>("f16");
    check_loops<bfloat16>("bf16");
    check_loops<float16, float>("f16 to f32");
    check_loops<bfloat16, float>("bf16 to f32");
    check_loops<float, float16>("f32 to f16");
    check_loops<float, bfloat16>("f32 to bf16");
}

TEST_CASE_TEMPLATE("vector loops convert every 16-bit number, and round to it, as its type does", T, float16,
                   bfloat16) {
    std::vector<T> all(65536);
    for (std::size_t bits = 0; bits < all.size(); ++bits) all[bits].bits = static_cast<std::uint16_t>(bits);
    std::vector<float> wide(all.size());
    const void* from = all.data();
    void* to = wide.data();
    dptk::detail::sum_vectors<T, float>({{&from, 1}, {&to, 1}, all.size()});
    std::size_t different = 0;
    for (std::size_t i = 0; i < all.size(); ++i) {
        const auto expected = static_cast<float>(all[i]);
        different += std::memcmp(&wide[i], &expected, sizeof expected) != 0 ? 1 : 0;
    }
    CHECK(different == 0);

    // Values around all of them, and values that 16-bit formats cannot represent.
    std::vector<float> numbers = {0x1p-26F, 0x1p-25F, 0x1.8p-25F, 65519.0F, 65520.0F, 1e30F,
                                  -1e30F,   1e-45F,   -0.0F,      NAN,      INFINITY, -INFINITY};
    for (const float number : wide) {
        for (const int step : {-1, 0, 1, 0x1000, -0x1000, 0xfff})
            numbers.push_back(std::bit_cast<float>(std::bit_cast<std::uint32_t>(number) +
                                                   static_cast<std::uint32_t>(step)));
    }
    std::vector<T> rounded(numbers.size());
    from = numbers.data();
    to = rounded.data();
    dptk::detail::sum_vectors<float, T>({{&from, 1}, {&to, 1}, numbers.size()});
    different = 0;
    for (std::size_t i = 0; i < numbers.size(); ++i)
        different += rounded[i].bits != T(numbers[i]).bits ? 1 : 0;
    CHECK(different == 0);
}

#if defined(__x86_64__) && !defined(__AVX512BW__)
TEST_CASE("sums use no larger instruction set than DPTK_MAX_CPU_ISA names") {
    using dptk::detail::InstructionSet;
    const InstructionSet before = dptk::detail::instruction_limit();
    CHECK(dptk::detail::instruction_set() <= before);
    const char* const variable = std::getenv("DPTK_MAX_CPU_ISA");
    const std::string value = variable == nullptr ? "" : variable;
    const std::pair<const char*, InstructionSet> names[] = {{"SSE41", InstructionSet::baseline},
                                                            {"AVX2", InstructionSet::avx2},
                                                            {"AVX512_CORE", InstructionSet::avx512},
                                                            {"", InstructionSet::avx512}};
    for (const auto& [name, limit] : names) {
        ::setenv("DPTK_MAX_CPU_ISA", name, 1);
        CHECK(dptk::detail::instruction_limit() == limit);
        CHECK_NOTHROW(dptk::detail::check_instruction_limit());
    }
    ::setenv("DPTK_MAX_CPU_ISA", "avx2", 1);
    CHECK_THROWS_WITH_AS(dptk::detail::check_instruction_limit(),
                         "invalid DPTK_MAX_CPU_ISA='avx2': expected SSE41, AVX2 or AVX512_CORE",
                         dptk::ArgumentError);
    ::setenv("DPTK_MAX_CPU_ISA", value.c_str(), 1);
}
#endif
