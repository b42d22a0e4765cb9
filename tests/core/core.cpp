#include <doctest/doctest.h>
#include <dptk/core/buffer.hpp>
#include <dptk/core/detail/name_pattern.hpp>
#include <dptk/core/detail/number_text.hpp>
#include <dptk/core/detail/suggestion.hpp>
#include <dptk/core/detail/text.hpp>
#include <dptk/core/dtype.hpp>
#include <dptk/core/log.hpp>
#include <dptk/core/version.hpp>

#include <cstdio>
#include <limits>
#include <string>
#include <vector>

struct MyFloat {
    float value;
};

template <>
struct dptk::DTypeTraits<MyFloat> {
    static constexpr DType value = DType::f32;
};

TEST_CASE("C++ types map to dtypes by their size and sign") {
    CHECK(dptk::dtype_of<bool> == dptk::DType::boolean);
    CHECK(dptk::dtype_of<const float> == dptk::DType::f32);
    CHECK(dptk::dtype_of<unsigned char> == dptk::DType::u8);
    CHECK(dptk::dtype_of<long long> == dptk::DType::i64);
    CHECK(dptk::dtype_of<std::uint16_t> == dptk::DType::u16);
    CHECK(dptk::dtype_of<MyFloat> == dptk::DType::f32);
    CHECK_FALSE(dptk::Element<std::string>);
}

TEST_CASE("visiting a dtype passes the type of its size and name") {
    for (int i = 0; i <= static_cast<int>(dptk::DType::f64); ++i) {
        const auto dtype = static_cast<dptk::DType>(i);
        dptk::visit_dtype(dtype, [&](auto zero) {
            CHECK(dptk::dtype_of<decltype(zero)> == dtype);
            CHECK(sizeof(zero) == dptk::dtype_size(dtype));
        });
    }
    CHECK(dptk::dtype_name(dptk::DType::f64) == "f64");
    CHECK_THROWS_AS(dptk::visit_dtype(static_cast<dptk::DType>(99), [](auto) {}), dptk::ArgumentError);
}

TEST_CASE("a slice of a buffer counts in elements") {
    std::vector<double> memory(10);
    const dptk::Buffer buffer{memory.data(), memory.size(), dptk::DType::f64, {}};
    CHECK(buffer.bytes() == 80);
    CHECK(buffer.slice(3, 4).data == &memory[3]);
    CHECK(buffer.slice(3, 4).bytes() == 32);
}

TEST_CASE("messages are built from pieces") {
    CHECK(dptk::detail::text("rank ", 3, ' ', std::string("of "), 4U) == "rank 3 of 4");
    CHECK(dptk::detail::shape_text(std::vector<std::size_t>{64, 3}) == "[64, 3]");
}

TEST_CASE("numbers are written as printf writes them") {
    for (const double number : {0.0, -0.0, 0.5, -1234.5, 2.5, 1e-7, 123456789.0, 1e300, -1e308, 0.1 + 0.2,
                                std::numeric_limits<double>::infinity()}) {
        for (const int digits : {0, 1, 3, 9, 20}) {
            char expected[512];
            std::snprintf(expected, sizeof expected, "%.*f", digits, number);
            CHECK(dptk::detail::fixed_text(number, digits) == expected);
            std::snprintf(expected, sizeof expected, "%.*g", digits, number);
            CHECK(dptk::detail::general_text(number, digits) == expected);
        }
    }
    CHECK(dptk::detail::padded("ab", 4) == "  ab");
    CHECK(dptk::detail::padded("abc", 2) == "abc");
}

TEST_CASE("information is logged by rank 0 alone, warnings by all, through the program's sink") {
    std::vector<std::string> lines;
    dptk::set_log_sink([&](dptk::LogLevel, int rank, std::string_view line) {
        lines.push_back(dptk::detail::text(rank, ": ", line));
    });
    dptk::log(dptk::LogLevel::info, 0, "hello");
    dptk::log(dptk::LogLevel::info, 1, "not logged");
    dptk::log(dptk::LogLevel::warning, 1, "logged");
    dptk::set_log_sink({});
    CHECK(lines == std::vector<std::string>{"0: hello", "1: logged"});
}

TEST_CASE("the version as text is the version as numbers") {
    CHECK(std::string(DPTK_VERSION) ==
          dptk::detail::text(DPTK_VERSION_MAJOR, ".", DPTK_VERSION_MINOR, ".", DPTK_VERSION_PATCH));
    CHECK(DPTK_VERSION_NUMBER / 10000 == DPTK_VERSION_MAJOR);
    CHECK(DPTK_VERSION_NUMBER / 100 % 100 == DPTK_VERSION_MINOR);
    CHECK(DPTK_VERSION_NUMBER % 100 == DPTK_VERSION_PATCH);
}

TEST_CASE("patterns of names") {
    using dptk::detail::matches_pattern;
    CHECK(matches_pattern("layer1.0.conv1.weight", "layer1.*"));
    CHECK(matches_pattern("layer1.0.conv1.weight", "*conv?.weight"));
    CHECK(matches_pattern("aab.ab", "*ab"));  // the first "ab" is not the end
    CHECK(matches_pattern("fc.bias", "fc.bias"));
    CHECK(matches_pattern("fc.bias", "*"));
    CHECK(matches_pattern("fc.bias", "**.bias*"));
    CHECK(matches_pattern("", "*"));
    CHECK_FALSE(matches_pattern("layer10.0.weight", "layer1.*"));
    CHECK_FALSE(matches_pattern("fc.bias", "fc"));
    CHECK_FALSE(matches_pattern("fc.bias", "*.bia"));
    CHECK_FALSE(matches_pattern("fc.bias", "fc.bias?"));
    CHECK_FALSE(matches_pattern("fc.bias", ""));
}

TEST_CASE("a name with a typo has a suggestion, and another word has none") {
    const std::vector<std::string> names{"conv1.*", "layer1.*", "fc.*"};
    CHECK(dptk::detail::suggestion("layr1.*", names) == "; did you mean layer1.*?");
    CHECK(dptk::detail::suggestion("classifier", names).empty());
    CHECK(dptk::detail::suggestion("fc", {}).empty());
}
