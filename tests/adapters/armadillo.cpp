#include <dptk/adapters/armadillo.hpp>

#include <utility>

#include "adapters/support.hpp"

namespace {

using test::described;
using test::Lines;
using test::problem_of;

struct Layer {
    arma::fmat weight, weight_gradient;
    arma::fvec bias, bias_gradient;

    void for_each_parameter(auto& sink) {
        sink("weight", weight, weight_gradient);
        sink("bias", bias, bias_gradient);
    }
};

template <class A>
void fill(A& array, int rank) {
    std::size_t element = 0;
    for (auto& x : array)
        x = static_cast<std::remove_reference_t<decltype(x)>>(test::made_up(rank, element++));
}

template <class A>
bool is_mean(const A& array, int ranks) {
    std::size_t element = 0;
    for (const auto x : array) {
        if (static_cast<double>(x) != test::mean_of_made_up(ranks, element++)) return false;
    }
    return true;
}

}  // namespace

TEST_CASE("Armadillo's matrices, vectors and cubes are parameters of their shapes") {
    arma::fmat weight(2, 3), weight_gradient(2, 3);
    arma::vec column(4), column_gradient(4);
    arma::rowvec row(3), row_gradient(3);
    arma::fcube cube(2, 3, 4), cube_gradient(2, 3, 4);
    arma::mat::fixed<2, 2> fixed, fixed_gradient;
    const dptk::ParameterSource source(
        std::tie(weight, column, row, cube, fixed),
        std::tie(weight_gradient, column_gradient, row_gradient, cube_gradient, fixed_gradient));
    CHECK(described(source) == Lines{"[0] [2, 3] f32 column-major", "[1] [4] f64", "[2] [3] f64",
                                     "[3] [2, 3, 4] f32 column-major", "[4] [2, 2] f64 column-major"});
    CHECK(source.collect()[0].value == weight.memptr());
    CHECK(source.collect()[3].gradient == cube_gradient.memptr());
    arma::fmat other(2, 3);
    weight = std::move(other);
    CHECK(source.collect()[0].value == weight.memptr());
}

TEST_CASE("Armadillo's matrices nest in models and pairs") {
    std::vector<Layer> layers(1);
    layers[0].weight = layers[0].weight_gradient = arma::fmat(2, 2);
    layers[0].bias = layers[0].bias_gradient = arma::fvec(2);
    CHECK(described(dptk::ParameterSource(layers)) ==
          Lines{"[0].weight [2, 2] f32 column-major", "[0].bias [2] f32"});
    std::pair<arma::mat, arma::mat> pair{arma::mat(2, 2), arma::mat(2, 2)};
    CHECK(dptk::ParameterSource(pair).collect()[0].gradient == pair.second.memptr());
}

TEST_CASE("contiguous parts of a matrix are kept by value") {
    arma::fmat weight(4, 6), gradient(4, 6);
    const dptk::ParameterSource columns(weight.cols(1, 2), gradient.cols(1, 2));
    CHECK(described(columns) == Lines{"[0] [4, 2] f32 column-major"});
    CHECK(columns.collect()[0].value == weight.colptr(1));
    CHECK(described({weight.col(2), gradient.col(2)}) == Lines{"[0] [4] f32"});
    CHECK(described({weight.col(2).rows(1, 2), gradient.col(2).rows(1, 2)}) == Lines{"[0] [2] f32"});

    arma::cube cube(2, 3, 4), cube_gradient(2, 3, 4);
    const dptk::ParameterSource slices(cube.slices(1, 2), cube_gradient.slices(1, 2));
    CHECK(described(slices) == Lines{"[0] [2, 3, 2] f64 column-major"});
    CHECK(slices.collect()[0].value == cube.slice_memptr(1));
}

TEST_CASE("other parts are one parameter for each contiguous run, or an error") {
    arma::fmat weight(4, 3), gradient(4, 3);
    const dptk::ParameterSource part(weight.submat(1, 0, 2, 2), gradient.submat(1, 0, 2, 2));
    CHECK(described(part) == Lines{"[0].run[0] [2] f32 column-major", "[0].run[1] [2] f32 column-major",
                                   "[0].run[2] [2] f32 column-major"});
    CHECK(part.collect()[2].value == &weight(1, 2));
    const dptk::ParameterSource row(weight.row(3), gradient.row(3));
    CHECK(described(row) == Lines{"[0].run[0] [1] f32", "[0].run[1] [1] f32", "[0].run[2] [1] f32"});
    CHECK(row.collect()[2].gradient == &gradient(3, 2));

    arma::cube cube(4, 3, 2), cube_gradient(4, 3, 2);
    const dptk::ParameterSource rows(cube.subcube(1, 0, 0, 2, 2, 1), cube_gradient.subcube(1, 0, 0, 2, 2, 1));
    CHECK(rows.collect().size() == 6);
    CHECK(rows.collect()[4].value == &cube(1, 1, 1));
    const dptk::ParameterSource columns(cube.subcube(0, 1, 0, 3, 2, 1),
                                        cube_gradient.subcube(0, 1, 0, 3, 2, 1));
    CHECK(columns.collect().size() == 2);
    CHECK(columns.collect()[1].value == &cube(0, 1, 1));
    CHECK(
        test::contains(problem_of({cube.subcube(1, 1, 0, 2, 2, 1), cube_gradient.subcube(1, 1, 0, 2, 2, 1)}),
                       "cannot be a parameter; pass it slice by slice"));
}

TEST_CASE_TEMPLATE("Armadillo gradients are averaged over ranks, and values are rank 0's", Matrix, arma::fmat,
                   arma::mat) {
    test::on_ranks([](dptk::ProcessGroup& group) {
        Matrix weight(3, 4), gradient(3, 4);
        fill(weight, group.rank());
        dptk::DistributedDataParallel ddp(group, weight, gradient);
        CHECK(is_mean(weight, 1));
        for (int step = 0; step < 2; ++step) {
            fill(gradient, group.rank());
            ddp.synchronize();
            CHECK(is_mean(gradient, group.size()));
        }
    });
}

TEST_CASE("Armadillo gradients may be of another type than their values") {
    test::on_ranks([](dptk::ProcessGroup& group) {
        arma::mat weight(3, 4);
        arma::fmat gradient(3, 4);
        fill(weight, group.rank());
        dptk::DistributedDataParallel ddp(group, weight, gradient);
        CHECK(is_mean(weight, 1));
        fill(gradient, group.rank());
        ddp.synchronize();
        CHECK(is_mean(gradient, group.size()));
        CHECK(ddp.parameters()[0].gradient_dtype == dptk::DType::f32);
    });
}

TEST_CASE("only the elements of a strided part of a matrix are averaged") {
    test::on_ranks([](dptk::ProcessGroup& group) {
        const double rank = group.rank();
        arma::mat weight(5, 4), gradient(5, 4);
        weight.fill(rank);
        gradient.fill(rank);
        dptk::DistributedDataParallel ddp(group, weight.submat(1, 1, 3, 2), gradient.submat(1, 1, 3, 2));
        ddp.synchronize();
        arma::mat expected(5, 4);
        expected.fill(rank);
        expected.submat(1, 1, 3, 2).fill((group.size() - 1) / 2.0);
        CHECK(arma::approx_equal(gradient, expected, "absdiff", 0));
        expected.submat(1, 1, 3, 2).fill(0);
        CHECK(arma::approx_equal(weight, expected, "absdiff", 0));
    });
}
