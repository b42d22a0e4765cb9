#include <dptk/adapters/eigen.hpp>

#include <map>
#include <utility>

#include "adapters/support.hpp"

namespace {

using Eigen::MatrixXd;
using Eigen::MatrixXf;
using Eigen::VectorXf;
using RowMajor = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
using test::described;
using test::Lines;
using test::problem_of;

/// A typical model: a layer that names its matrices.
struct Layer {
    MatrixXf weight, weight_gradient;
    VectorXf bias, bias_gradient;

    void for_each_parameter(auto& sink) {
        sink("weight", weight, weight_gradient);
        sink("bias", bias, bias_gradient);
    }
};

/// Sets element i, in memory order, to made_up(rank, i).
template <class A>
void fill(A&& array, int rank) {
    std::size_t element = 0;
    for (Eigen::Index outer = 0; outer < array.outerSize(); ++outer) {
        for (Eigen::Index inner = 0; inner < array.innerSize(); ++inner) {
            using Scalar = typename std::remove_cvref_t<A>::Scalar;
            array.coeffRef(array.rowIndexByOuterInner(outer, inner),
                           array.colIndexByOuterInner(outer, inner)) =
                static_cast<Scalar>(static_cast<float>(test::made_up(rank, element++)));
        }
    }
}

/// Whether all elements are the mean of the values that fill() sets on the ranks.
template <class A>
bool is_mean(const A& array, int ranks) {
    std::size_t element = 0;
    for (Eigen::Index outer = 0; outer < array.outerSize(); ++outer) {
        for (Eigen::Index inner = 0; inner < array.innerSize(); ++inner) {
            const auto found = static_cast<double>(array.coeff(array.rowIndexByOuterInner(outer, inner),
                                                               array.colIndexByOuterInner(outer, inner)));
            if (found != test::mean_of_made_up(ranks, element++)) return false;
        }
    }
    return true;
}

}  // namespace

TEST_CASE("Eigen's matrices, vectors and arrays are parameters of their shapes") {
    MatrixXf weight(2, 3), weight_gradient(2, 3);
    VectorXf bias(4), bias_gradient(4);
    Eigen::ArrayXXd scale(2, 2), scale_gradient(2, 2);
    RowMajor rows(3, 2), rows_gradient(3, 2);
    const dptk::ParameterSource source(
        std::tie(weight, bias, scale, rows),
        std::tie(weight_gradient, bias_gradient, scale_gradient, rows_gradient));
    CHECK(described(source) == Lines{"[0] [2, 3] f32 column-major", "[1] [4] f32",
                                     "[2] [2, 2] f64 column-major", "[3] [3, 2] f32"});
    CHECK(source.collect()[0].value == weight.data());
    CHECK(source.collect()[0].gradient == weight_gradient.data());

    Eigen::Matrix<float, 2, 2> fixed, fixed_gradient;
    Eigen::Matrix<Eigen::half, 3, 1> half, half_gradient;
    Eigen::Matrix<Eigen::bfloat16, 1, 3> bfloat, bfloat_gradient;
    CHECK(described(
              {std::tie(fixed, half, bfloat), std::tie(fixed_gradient, half_gradient, bfloat_gradient)}) ==
          Lines{"[0] [2, 2] f32 column-major", "[1] [3] f16", "[2] [3] bf16"});
}

TEST_CASE("matrices nest in models, pairs, ranges and maps") {
    std::vector<Layer> layers(2);
    for (Layer& layer : layers) {
        layer.weight = layer.weight_gradient = MatrixXf::Zero(2, 2);
        layer.bias = layer.bias_gradient = VectorXf::Zero(2);
    }
    CHECK(described(dptk::ParameterSource(layers)) ==
          Lines{"[0].weight [2, 2] f32 column-major", "[0].bias [2] f32",
                "[1].weight [2, 2] f32 column-major", "[1].bias [2] f32"});

    std::map<std::string, std::pair<MatrixXd, MatrixXd>> pairs;
    pairs["w"] = {MatrixXd::Zero(1, 3), MatrixXd::Zero(1, 3)};
    const dptk::ParameterSource source(pairs);
    CHECK(described(source) == Lines{"w [1, 3] f64"});
    CHECK(source.collect()[0].gradient == pairs["w"].second.data());
}

TEST_CASE("Eigen memory that moved is found again") {
    MatrixXf weight = MatrixXf::Zero(2, 2), gradient = weight;
    const dptk::ParameterSource source(weight, gradient);
    MatrixXf other = MatrixXf::Ones(2, 2);
    weight.swap(other);
    CHECK(source.collect()[0].value == weight.data());
}

TEST_CASE("a map, a reference and a contiguous block are kept by value") {
    std::vector<float> memory(12), gradients(12);
    const auto map = [](std::vector<float>& of) { return Eigen::Map<MatrixXf>(of.data(), 3, 4); };
    const dptk::ParameterSource source(map(memory), map(gradients));
    CHECK(described(source) == Lines{"[0] [3, 4] f32 column-major"});
    CHECK(source.collect()[0].value == memory.data());

    MatrixXf weight(3, 4), gradient(3, 4);
    CHECK(described({Eigen::Ref<MatrixXf>(weight), Eigen::Ref<MatrixXf>(gradient)}) ==
          Lines{"[0] [3, 4] f32 column-major"});
    const dptk::ParameterSource columns(weight.middleCols(1, 2), gradient.middleCols(1, 2));
    CHECK(described(columns) == Lines{"[0] [3, 2] f32 column-major"});
    CHECK(columns.collect()[0].value == &weight(0, 1));
    CHECK(described({weight.col(2), gradient.col(2)}) == Lines{"[0] [3] f32"});
    CHECK(described({weight.transpose(), gradient.transpose()}) == Lines{"[0] [4, 3] f32"});
}

TEST_CASE("a block that is not contiguous is a parameter for each run") {
    MatrixXf weight(4, 3), gradient(4, 3);
    const dptk::ParameterSource block(weight.block(1, 0, 2, 3), gradient.block(1, 0, 2, 3));
    CHECK(described(block) == Lines{"[0].run[0] [2] f32 column-major", "[0].run[1] [2] f32 column-major",
                                    "[0].run[2] [2] f32 column-major"});
    CHECK(block.collect()[2].value == &weight(1, 2));
    CHECK(block.collect()[2].gradient == &gradient(1, 2));

    const dptk::ParameterSource row(weight.row(3), gradient.row(3));
    CHECK(described(row) == Lines{"[0].run[0] [1] f32", "[0].run[1] [1] f32", "[0].run[2] [1] f32"});
    CHECK(row.collect()[1].value == &weight(3, 1));
}

TEST_CASE("a matrix with a block of gradients is split like the block") {
    MatrixXf weight(2, 3), all(4, 3);
    const dptk::ParameterSource source(std::pair<MatrixXf&, Eigen::Block<MatrixXf>>(weight, all.topRows(2)));
    CHECK(described(source).back() == "[0].run[2] [2] f32 column-major");
    CHECK(source.collect()[2].value == &weight(0, 2));
    CHECK(source.collect()[2].gradient == &all(0, 2));
}

TEST_CASE("gradients of another shape or storage order are errors that say which") {
    const auto problem = [](auto value, auto gradient) {
        auto pair = std::pair(value, gradient);
        return problem_of(dptk::ParameterSource(pair));
    };
    CHECK(problem(MatrixXf(2, 3), MatrixXf(3, 2)) ==
          "parameter [0] has shape [2, 3], but its gradient has shape [3, 2]");
    CHECK(problem(MatrixXf(2, 3), MatrixXf(2, 2)) == "parameter [0] has 6 elements, but its gradient has 4");
    CHECK(problem(MatrixXf(2, 3), RowMajor(2, 3)) ==
          "parameter [0] is column-major, but its gradient is row-major");

    MatrixXf weight(2, 3), turned(3, 2);
    CHECK(problem_of({weight, turned}) ==
          "parameter [0] has shape [2, 3], but its gradient has shape [3, 2]");
    RowMajor rows(2, 3);
    CHECK(problem_of({weight, rows}) == "parameter [0] is column-major, but its gradient is row-major");
    std::vector<float> flat(6);
    CHECK(problem_of({weight, flat}) == "none");

    float memory[32] = {};
    using Strides = Eigen::Stride<Eigen::Dynamic, Eigen::Dynamic>;
    Eigen::Map<MatrixXf, 0, Strides> both(memory, 2, 3, Strides(10, 2));
    CHECK(problem_of(dptk::ParameterSource(both)) ==
          "an Eigen matrix with gaps in both dimensions cannot be a parameter: its inner stride is 2, and "
          "its outer stride 10 instead of 4");
}

TEST_CASE_TEMPLATE("Eigen gradients are averaged over ranks, and values are rank 0's", Matrix, MatrixXf,
                   MatrixXd, RowMajor, Eigen::Matrix<Eigen::half, Eigen::Dynamic, Eigen::Dynamic>) {
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

TEST_CASE("Eigen gradients may be of another type than their values") {
    test::on_ranks([](dptk::ProcessGroup& group) {
        MatrixXf weight(3, 4);
        fill(weight, group.rank());
        Eigen::Matrix<Eigen::half, Eigen::Dynamic, Eigen::Dynamic> gradient(3, 4);
        dptk::DistributedDataParallel ddp(group, weight, gradient);
        CHECK(is_mean(weight, 1));
        fill(gradient, group.rank());
        ddp.synchronize();
        CHECK(is_mean(gradient, group.size()));
        CHECK(ddp.parameters()[0].gradient_dtype == dptk::DType::f16);
    });
}

TEST_CASE("only the elements of a strided block are averaged and sent") {
    test::on_ranks([](dptk::ProcessGroup& group) {
        const auto rank = static_cast<float>(group.rank());
        MatrixXf weight = MatrixXf::Constant(5, 4, rank), gradient = weight;
        dptk::DistributedDataParallel ddp(group, weight.block(1, 1, 3, 2), gradient.block(1, 1, 3, 2));
        MatrixXf expected = MatrixXf::Constant(5, 4, rank);
        expected.block(1, 1, 3, 2).setZero();
        CHECK(weight == expected);

        fill(gradient.block(1, 1, 3, 2), group.rank());
        ddp.synchronize();
        CHECK(is_mean(gradient.block(1, 1, 3, 2), group.size()));
        gradient.block(1, 1, 3, 2).setConstant(rank);
        CHECK(gradient == MatrixXf::Constant(5, 4, rank));
    });
}

TEST_CASE("models that differ only in storage order do not train together") {
    dptk::launch_threads(2, [](dptk::ProcessGroup& group) {
        std::string text;
        MatrixXf columns(2, 3), columns_gradient(2, 3);
        RowMajor rows(2, 3), rows_gradient(2, 3);
        const bool is_error = test::throws<dptk::MismatchError>(
            text,
            [&] {
                if (group.rank() == 0) {
                    dptk::DistributedDataParallel(group, columns, columns_gradient);
                } else {
                    dptk::DistributedDataParallel(group, rows, rows_gradient);
                }
            },
            test::Agreed::yes);
        CHECK(is_error);
        CHECK(test::contains(text, "parameter [0] of f32 [2, 3] with 6 elements in layout 1"));
    });
}
