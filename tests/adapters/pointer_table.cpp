#include <dptk/adapters/pointer_table.hpp>

#include <array>
#include <numeric>

#include "adapters/support.hpp"

extern "C" {
// A struct as in a C header.
struct layer {
    float* value;
    float* grad;
    int n;
};
}

namespace {

using test::described;
using test::Lines;
using test::problem_of;

}  // namespace

TEST_CASE("one flat array with a list of sizes is one parameter per size") {
    std::vector<double> values(6), gradients(6);
    const std::array<std::size_t, 3> sizes = {3, 1, 2};
    const dptk::ParameterSource source(
        dptk::flat_table(values.data(), gradients.data(), std::span<const std::size_t>(sizes)));
    CHECK(described(source) == Lines{"[0] [3] f64", "[1] [1] f64", "[2] [2] f64"});
    CHECK(source.collect()[2].value == &values[4]);
    CHECK(source.collect()[2].gradient == &gradients[4]);
}

TEST_CASE("arrays of pointers are read again each time") {
    float a[3] = {}, b[2] = {}, ga[3] = {}, gb[2] = {}, other[2] = {};
    float* values[] = {a, b};
    float* gradients[] = {ga, gb};
    const int sizes[] = {3, 2};
    const dptk::ParameterSource source(dptk::pointer_table(values, gradients, sizes, 2));
    CHECK(described(source) == Lines{"[0] [3] f32", "[1] [2] f32"});
    CHECK(source.collect()[1].gradient == gb);
    gradients[1] = other;
    CHECK(source.collect()[1].gradient == other);
}

TEST_CASE("an array of structs is one parameter per struct") {
    float a[3] = {}, b[2] = {}, ga[3] = {}, gb[2] = {};
    layer layers[] = {{a, ga, 3}, {b, gb, 2}};
    const dptk::ParameterSource source(dptk::struct_table(layers, 2, &layer::value, &layer::grad, &layer::n));
    CHECK(described(source) == Lines{"[0] [3] f32", "[1] [2] f32"});
    CHECK(source.collect()[0].gradient == ga);
    layers[1].n = -2;
    CHECK(problem_of(source) == "expected a parameter size of at least 0, got -2");
    layers[1] = {b, nullptr, 2};
    CHECK(problem_of(source) == "parameter [1] has no gradient");
}

TEST_CASE("gradients in a table are averaged over ranks") {
    test::on_ranks([](dptk::ProcessGroup& group) {
        std::vector<float> values(5, static_cast<float>(group.rank())), gradients(5);
        layer layers[] = {{values.data(), gradients.data(), 3}, {&values[3], &gradients[3], 2}};
        dptk::DistributedDataParallel ddp(
            group, dptk::struct_table(layers, 2, &layer::value, &layer::grad, &layer::n));
        CHECK(values == std::vector<float>(5));
        for (std::size_t i = 0; i < 5; ++i) gradients[i] = static_cast<float>(test::made_up(group.rank(), i));
        ddp.synchronize();
        for (std::size_t i = 0; i < 5; ++i) CHECK(gradients[i] == test::mean_of_made_up(group.size(), i));
    });
}

TEST_CASE("gradients in a table may be of another type than their values") {
    test::on_ranks([](dptk::ProcessGroup& group) {
        std::vector<float> values(5);
        std::vector<dptk::float16> gradients(5);
        const std::array sizes = {3, 2};
        float* const value_of[] = {values.data(), &values[3]};
        dptk::float16* const gradient_of[] = {gradients.data(), &gradients[3]};
        struct Entry {
            float* value;
            dptk::float16* gradient;
            int size;
        };
        Entry entries[] = {{value_of[0], gradient_of[0], sizes[0]}, {value_of[1], gradient_of[1], sizes[1]}};
        const auto check = [&](auto&& table) {
            dptk::DistributedDataParallel ddp(group, table);
            for (std::size_t i = 0; i < 5; ++i)
                gradients[i] = dptk::float16(static_cast<float>(test::made_up(group.rank(), i)));
            ddp.synchronize();
            for (std::size_t i = 0; i < 5; ++i)
                CHECK(static_cast<float>(gradients[i]) == test::mean_of_made_up(group.size(), i));
        };
        check(dptk::flat_table(values.data(), gradients.data(), std::span<const int>(sizes)));
        check(dptk::pointer_table(value_of, gradient_of, sizes.data(), 2));
        check(dptk::struct_table(entries, 2, &Entry::value, &Entry::gradient, &Entry::size));
    });
}
