#include <dptk/adapters/mdspan.hpp>

#include <algorithm>
#include <array>
#include <numeric>
#include <utility>

#ifdef DPTK_TEST_CUDA_MDSPAN
#include <cuda/std/mdspan>
#endif

#include "adapters/support.hpp"

namespace {

using test::described;
using test::Lines;
using test::problem_of;

/// The part of std::mdspan's interface that dptk uses, with arbitrary strides.
template <class T, std::size_t Rank>
class View {
  public:
    using element_type = T;
    using Sizes = std::array<std::size_t, Rank>;

    struct Extents {
        Sizes sizes;
        [[nodiscard]] std::size_t extent(std::size_t r) const { return sizes[r]; }
    };

    struct Mapping {
        Sizes sizes, strides;
        [[nodiscard]] std::size_t stride(std::size_t r) const { return strides[r]; }
        [[nodiscard]] bool is_unique() const {
            return std::ranges::find(strides, std::size_t{0}) == strides.end();
        }
        [[nodiscard]] bool is_strided() const { return true; }
        [[nodiscard]] bool is_exhaustive() const {
            std::size_t span = 1, count = 1;
            for (std::size_t r = 0; r < Rank; ++r) {
                span += (sizes[r] - 1) * strides[r];
                count *= sizes[r];
            }
            return span <= count;  // if it is less, some elements overlap
        }
    };

    View(T* data, Sizes sizes, Sizes strides) : data_(data), mapping_{sizes, strides} {}

    [[nodiscard]] static constexpr std::size_t rank() { return Rank; }
    [[nodiscard]] T* const& data_handle() const { return data_; }
    [[nodiscard]] Extents extents() const { return {mapping_.sizes}; }
    [[nodiscard]] const Mapping& mapping() const { return mapping_; }

  private:
    T* data_;
    Mapping mapping_;
};

}  // namespace

TEST_CASE("an mdspan-like view is a parameter of its shape, kept by value") {
    std::vector<float> values(24), gradients(24);
    const auto view = [](std::vector<float>& of, auto... strides) {
        return View<float, 3>(of.data(), {2, 3, 4}, {static_cast<std::size_t>(strides)...});
    };
    const dptk::ParameterSource rows(view(values, 12, 4, 1), view(gradients, 12, 4, 1));
    CHECK(described(rows) == Lines{"[0] [2, 3, 4] f32"});
    CHECK(rows.collect()[0].value == values.data());
    CHECK(rows.collect()[0].gradient == gradients.data());
    CHECK(described({view(values, 1, 2, 6), view(gradients, 1, 2, 6)}) ==
          Lines{"[0] [2, 3, 4] f32 column-major"});
    CHECK(test::contains(problem_of({view(values, 1, 2, 6), view(gradients, 12, 4, 1)}),
                         "parameter [0] is column-major, but its gradient is row-major"));
    const auto mixed = dptk::ParameterSource(view(values, 4, 8, 1), view(gradients, 4, 8, 1)).collect();
    CHECK(mixed[0].layout > dptk::column_major);
}

TEST_CASE("an mdspan with gaps between its elements is refused") {
    std::vector<double> values(12);
    const View<double, 2> part(values.data(), {2, 3}, {4, 1});
    const View<double, 2> repeated(values.data(), {1, 2}, {1, 0});
    CHECK(test::contains(problem_of({part, part}), "an mdspan with gaps, overlapping elements"));
    CHECK(test::contains(problem_of({repeated, repeated}), "gaps, overlapping elements or no strides"));
}

TEST_CASE("gradients in an mdspan are averaged over ranks") {
    test::on_ranks([](dptk::ProcessGroup& group) {
        std::vector<float> values(6), gradients(6);
        const View<float, 2> value(values.data(), {2, 3}, {3, 1}), gradient(gradients.data(), {2, 3}, {3, 1});
        std::iota(values.begin(), values.end(), static_cast<float>(group.rank()));
        dptk::DistributedDataParallel ddp(group, value, gradient);
        CHECK(values == std::vector<float>{0, 1, 2, 3, 4, 5});
        for (std::size_t i = 0; i < 6; ++i) gradients[i] = static_cast<float>(test::made_up(group.rank(), i));
        ddp.synchronize();
        for (std::size_t i = 0; i < 6; ++i) CHECK(gradients[i] == test::mean_of_made_up(group.size(), i));
    });
}

TEST_CASE("gradients in an mdspan may be of another type than their values") {
    test::on_ranks([](dptk::ProcessGroup& group) {
        std::vector<float> values(6);
        std::vector<dptk::float16> gradients(6);
        const View<float, 2> value(values.data(), {2, 3}, {3, 1});
        const View<dptk::float16, 2> gradient(gradients.data(), {2, 3}, {3, 1});
        dptk::DistributedDataParallel ddp(group, value, gradient);
        for (std::size_t i = 0; i < 6; ++i)
            gradients[i] = dptk::float16(static_cast<float>(test::made_up(group.rank(), i)));
        ddp.synchronize();
        for (std::size_t i = 0; i < 6; ++i)
            CHECK(static_cast<float>(gradients[i]) == test::mean_of_made_up(group.size(), i));
    });
}

#ifdef DPTK_TEST_CUDA_MDSPAN
TEST_CASE("the mdspan of CUDA's library is a parameter") {
    std::vector<float> values(6), gradients(6);
    using Extents = cuda::std::dextents<int, 2>;
    using Rows = cuda::std::mdspan<float, Extents>;
    using Columns = cuda::std::mdspan<float, Extents, cuda::std::layout_left>;
    CHECK(described({Rows(values.data(), 2, 3), Rows(gradients.data(), 2, 3)}) == Lines{"[0] [2, 3] f32"});
    CHECK(described({Columns(values.data(), 2, 3), Columns(gradients.data(), 2, 3)}) ==
          Lines{"[0] [2, 3] f32 column-major"});
    std::vector<std::pair<Rows, Rows>> pairs = {{Rows(values.data(), 2, 3), Rows(gradients.data(), 2, 3)}};
    CHECK(described(dptk::ParameterSource(pairs)) == Lines{"[0] [2, 3] f32"});
    CHECK(dptk::ParameterSource(pairs).collect()[0].gradient == gradients.data());
    using Single = cuda::std::mdspan<float, cuda::std::extents<int>>;
    CHECK(described({Single(values.data()), Single(gradients.data())}) == Lines{"[0] [] f32"});
}
#endif
