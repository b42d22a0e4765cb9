// A mistake on one rank throws the same error on all ranks, at once, with the rank and the parameter.
#include <doctest/doctest.h>

#include <cstdint>
#include <functional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "support/ranks.hpp"

namespace {

using dptk::Ready;
using Vectors = std::vector<std::vector<float>>;

/// A parameter of any number of dimensions.
struct Array {
    std::vector<std::size_t> extents;
    std::vector<float> elements;

    explicit Array(std::vector<std::size_t> shape) : extents(std::move(shape)) {
        std::size_t count = 1;
        for (const std::size_t extent : extents) count *= extent;
        elements.resize(count);
    }

    [[nodiscard]] const std::vector<std::size_t>& shape() const { return extents; }
    [[nodiscard]] float* data() { return elements.data(); }
    [[nodiscard]] float* begin() { return elements.data(); }
    [[nodiscard]] float* end() { return elements.data() + elements.size(); }
    [[nodiscard]] std::size_t size() const { return elements.size(); }
};

/// Returns the rank that makes the mistake: the last one, so that it is not rank 0.
[[nodiscard]] int culprit(const dptk::ProcessGroup& group) {
    return group.size() - 1;
}

/// Checks that `act` throws E on all ranks, with the same text, which contains the culprit and all of
/// `parts`, and that the group can still be used.
template <class E>
void check_agreed(dptk::ProcessGroup& group, const std::vector<std::string>& parts,
                  const std::function<void()>& act) {
    std::string text;
    CHECK(test::throws<E>(text, act, test::Agreed::yes));
    if (group.size() > 1) CHECK_MESSAGE(test::contains(text, "rank " + std::to_string(culprit(group))), text);
    for (const std::string& part : parts) CHECK_MESSAGE(test::contains(text, part), text);
    CHECK(group.all_reduce_value(1) == group.size());
}

}  // namespace

TEST_CASE("models that differ on one rank are a MismatchError on every rank") {
    test::on_ranks([](dptk::ProcessGroup& group) {
        if (group.size() == 1) return;
        const bool odd = group.rank() == culprit(group);
        using dptk::MismatchError;

        check_agreed<MismatchError>(group, {"parameter [1]"}, [&] {
            Vectors values = odd ? Vectors{{1}} : Vectors{{1}, {2}}, gradients = values;
            const dptk::DistributedDataParallel ddp(group, values, gradients);
        });
        check_agreed<MismatchError>(group, {"parameter [1]", "[3]", "[2]"}, [&] {
            Vectors values = {{1}, std::vector<float>(odd ? 3 : 2)}, gradients = values;
            const dptk::DistributedDataParallel ddp(group, values, gradients);
        });
        check_agreed<MismatchError>(group, {"parameter [0]", "[2, 3]", "[3, 2]"}, [&] {
            std::vector<Array> values = {
                Array(odd ? std::vector<std::size_t>{2, 3} : std::vector<std::size_t>{3, 2})};
            std::vector<Array> gradients = values;
            const dptk::DistributedDataParallel ddp(group, values, gradients);
        });
        check_agreed<MismatchError>(group, {"parameter [0]", "[6, 1]", "[6]"}, [&] {
            std::vector<Array> values = {
                Array(odd ? std::vector<std::size_t>{6, 1} : std::vector<std::size_t>{6})};
            std::vector<Array> gradients = values;
            const dptk::DistributedDataParallel ddp(group, values, gradients);
        });
        check_agreed<MismatchError>(group, {"parameter [0]", "f64", "f32"}, [&] {
            Vectors values = {{1}}, gradients = {{1}};
            std::vector<std::vector<double>> double_values = {{1}}, double_gradients = {{1}};
            if (odd) {
                const dptk::DistributedDataParallel ddp(group, double_values, double_gradients);
            } else {
                const dptk::DistributedDataParallel ddp(group, values, gradients);
            }
        });
        check_agreed<MismatchError>(group, {"Ready::marked", "Ready::at_synchronize"}, [&] {
            Vectors values = {{1}}, gradients = {{1}};
            const dptk::DistributedDataParallel ddp(group, values, gradients,
                                                    {.ready = odd ? Ready::marked : Ready::at_synchronize});
        });
        check_agreed<MismatchError>(group, {"bucket_cap_mb"}, [&] {
            Vectors values = {{1}}, gradients = {{1}};
            const dptk::DistributedDataParallel ddp(group, values, gradients,
                                                    {.bucket_cap_mb = odd ? 1.0 : 2.0});
        });
    });
}

TEST_CASE("a parameter that is added or removed on one rank is named on all ranks") {
    test::on_ranks([](dptk::ProcessGroup& group) {
        Vectors values = {{1}, {2}}, gradients = values;
        dptk::DistributedDataParallel ddp(group, values, gradients);
        const bool odd = group.rank() == culprit(group);
        const auto resize = [&](std::size_t parameters) {
            if (!odd) return;
            values.resize(parameters, {1});
            gradients.resize(parameters, {1});
        };
        resize(3);
        check_agreed<dptk::ArgumentError>(group,
                                          {"expected 2 parameters, as at construction", "got 3: [2] is new"},
                                          [&] { ddp.synchronize(); });
        resize(1);
        check_agreed<dptk::ArgumentError>(
            group, {"expected 2 parameters, as at construction", "got 1: [1] is missing"},
            [&] { ddp.synchronize(); });
        resize(2);
        CHECK_NOTHROW(ddp.synchronize());
    });
}

TEST_CASE("equal shapes over different numbers of elements are a MismatchError") {
    test::on_ranks([](dptk::ProcessGroup& group) {
        if (group.size() == 1) return;
        check_agreed<dptk::MismatchError>(group, {"parameter [0]", "4 elements", "5 elements"}, [&] {
            std::vector<Array> values = {Array({4})}, gradients;
            if (group.rank() == culprit(group)) values[0].elements.resize(5);
            gradients = values;
            const dptk::DistributedDataParallel ddp(group, values, gradients);
        });
    });
}

TEST_CASE("parameters that a model describes itself are checked") {
    struct Model {
        dptk::ParameterRef parameter;
        void for_each_parameter(dptk::ParameterSink& sink) const { sink(parameter); }
    };
    test::on_ranks([](dptk::ProcessGroup& group) {
        float value = 1, gradient = 1;
        std::int32_t integer = 1;
        const dptk::ParameterRef good{
            .name = "p", .shape = {1}, .count = 1, .value = &value, .gradient = &gradient};
        const auto check = [&](const std::string& part, const auto& spoil) {
            check_agreed<dptk::ArgumentError>(group, {"parameter p", part}, [&] {
                Model model{good};
                if (group.rank() == culprit(group)) spoil(model.parameter);
                const dptk::DistributedDataParallel ddp(group, model);
            });
        };
        check("is of i32", [&](dptk::ParameterRef& p) { p.dtype = dptk::DType::i32, p.value = &integer; });
        check("has no value", [](dptk::ParameterRef& p) { p.value = nullptr; });
        check("has no gradient", [](dptk::ParameterRef& p) { p.gradient = nullptr; });
        check("is on cuda:0, and this program has no transport for device memory",
              [](dptk::ParameterRef& p) { p.device.type = dptk::DeviceType::cuda; });
    });
}

TEST_CASE("an exception of the model's own for_each_parameter is an error on all ranks") {
    struct Model {
        std::vector<float> value = {1}, gradient = {1};
        bool broken = false;
        void for_each_parameter(dptk::ParameterSink& sink) {
            if (broken) throw std::runtime_error("this model is broken");
            sink(value, gradient);
        }
    };
    test::on_ranks([](dptk::ProcessGroup& group) {
        Model model;
        model.broken = group.rank() == culprit(group);
        check_agreed<dptk::ArgumentError>(group, {"this model is broken"},
                                          [&] { const dptk::DistributedDataParallel ddp(group, model); });
        model.broken = false;
        dptk::DistributedDataParallel ddp(group, model);
        model.broken = group.rank() == culprit(group);
        check_agreed<dptk::ArgumentError>(group, {"this model is broken"}, [&] { ddp.synchronize(3); });
        model.broken = false;
        CHECK_NOTHROW(ddp.synchronize());
    });
}

TEST_CASE("containers that are unusable on one rank are an ArgumentError on every rank") {
    test::on_ranks([](dptk::ProcessGroup& group) {
        const bool odd = group.rank() == culprit(group);
        check_agreed<dptk::ArgumentError>(group, {"there are 2 parameters, but 1 gradients"}, [&] {
            Vectors values = {{1}, {2}}, gradients = odd ? Vectors{{1}} : values;
            const dptk::DistributedDataParallel ddp(group, values, gradients);
        });
        check_agreed<dptk::ArgumentError>(group, {"bucket cap", "must be positive"}, [&] {
            Vectors values = {{1}}, gradients = values;
            const dptk::DistributedDataParallel ddp(group, values, gradients,
                                                    {.bucket_cap_mb = odd ? -1.0 : 2.0});
        });
    });
}

TEST_CASE("a sample count on some ranks only is an error of the step, and the next step works") {
    test::on_ranks([](dptk::ProcessGroup& group) {
        if (group.size() == 1) return;
        Vectors values = {{1}}, gradients = {{1}};
        dptk::DistributedDataParallel ddp(group, values, gradients);
        check_agreed<dptk::ArgumentError>(group, {"with a sample count of 7", "without a sample count"}, [&] {
            if (group.rank() == culprit(group)) {
                ddp.synchronize(7);
            } else {
                ddp.synchronize();
            }
        });
        gradients[0][0] = 3;
        ddp.synchronize();
        CHECK(gradients[0][0] == 3);
    });
}

TEST_CASE("a gradient that is not marked, or marked twice, is an error of the step on all ranks") {
    test::on_ranks([](dptk::ProcessGroup& group) {
        const bool odd = group.rank() == culprit(group);
        for (const double cap : {1.0 / (1024 * 1024), 25.0}) {
            Vectors values = {{1}, {2}, {3}}, gradients = {{1}, {2}, {3}};
            dptk::DistributedDataParallel ddp(group, values, gradients,
                                              {.bucket_cap_mb = cap, .ready = Ready::marked});
            const auto mark = [&](std::initializer_list<std::size_t> order) {
                for (const std::size_t i : order) ddp.mark_ready(i);
            };
            for (const std::size_t forgotten : {0U, 1U, 2U}) {
                check_agreed<dptk::ArgumentError>(
                    group, {"gradient [" + std::to_string(forgotten) + "] was neither marked"}, [&] {
                        for (std::size_t i = 0; i < 3; ++i) {
                            if (!odd || i != forgotten) ddp.mark_ready(i);
                        }
                        ddp.synchronize();
                    });
            }
            check_agreed<dptk::ArgumentError>(group, {"gradient [0] was marked twice"}, [&] {
                mark({2, 1, 0});
                if (odd) ddp.mark_ready(0);
                ddp.synchronize();
            });
            CHECK_THROWS_AS(ddp.mark_ready(3), dptk::ArgumentError);
            mark({0, 2, 1});  // the order is arbitrary
            gradients[0][0] = 5;
            CHECK_NOTHROW(ddp.synchronize());
        }
    });
}

TEST_CASE("a mark under Ready::at_synchronize is an error of the step on all ranks") {
    test::on_ranks([](dptk::ProcessGroup& group) {
        Vectors values = {{1}}, gradients = {{1}};
        dptk::DistributedDataParallel ddp(group, values, gradients);
        check_agreed<dptk::ArgumentError>(group, {"Ready::at_synchronize"}, [&] {
            if (group.rank() == culprit(group)) ddp.mark_ready(0);
            ddp.synchronize();
        });
    });
}

TEST_CASE(
    "a parameter that is resized, added or lost after construction is an error of the step on all ranks") {
    test::on_ranks([](dptk::ProcessGroup& group) {
        const bool odd = group.rank() == culprit(group);
        for (const Ready ready : {Ready::at_synchronize, Ready::marked}) {
            Vectors values = {{1}, {2}}, gradients = {{1}, {2}};
            dptk::DistributedDataParallel ddp(group, values, gradients, {.ready = ready});
            const auto step = [&] {
                if (ready == Ready::marked) {
                    ddp.mark_ready(1);
                    ddp.mark_ready(0);
                }
                ddp.synchronize();
            };
            check_agreed<dptk::ArgumentError>(group, {"parameter [1] was 1 x f32", "is 2 x f32 now"}, [&] {
                if (odd) values[1].resize(2), gradients[1].resize(2);
                step();
            });
            values[1].resize(1), gradients[1].resize(1);
            CHECK_NOTHROW(step());
            check_agreed<dptk::ArgumentError>(group, {"expected 2 parameters, as at construction"}, [&] {
                if (odd) values.pop_back(), gradients.pop_back();
                step();
            });
        }
    });
}

TEST_CASE(
    "a gradient that is moved or resized during a step is an error on all ranks, and is not written to") {
    test::on_ranks([](dptk::ProcessGroup& group) {
        const bool odd = group.rank() == culprit(group);
        for (const double cap :
             {1.0 / (1024 * 1024), 25.0}) {  // each gradient in its own bucket, or all in one
            Vectors values = {{1}, {2}}, gradients = values, before;
            dptk::DistributedDataParallel ddp(group, values, gradients,
                                              {.bucket_cap_mb = cap, .ready = Ready::marked});
            const auto step = [&](std::size_t moved, bool is_marked_before, std::size_t size) {
                const auto move = [&] {
                    if (odd) before.push_back(std::exchange(gradients[moved], std::vector<float>(size, 9)));
                };
                for (std::vector<float>& gradient : gradients) gradient.assign(1, odd ? 5 : 0);
                ddp.begin_step();
                ddp.mark_ready(1);
                if (!is_marked_before) move();
                ddp.mark_ready(0);
                if (is_marked_before) move();
                if (size == 2) values[moved].resize(2);
                ddp.synchronize();
            };
            check_agreed<dptk::ArgumentError>(group, {"gradient [1] has moved"}, [&] { step(1, true, 1); });
            check_agreed<dptk::ArgumentError>(group, {"gradient [0] has moved"}, [&] { step(0, true, 1); });
            check_agreed<dptk::ArgumentError>(group, {"gradient [0] has moved"}, [&] { step(0, false, 1); });
            check_agreed<dptk::ArgumentError>(group, {"parameter [1] was 1 x f32"},
                                              [&] { step(1, true, 2); });
            for (const std::vector<float>& memory : before) CHECK(memory[0] == 5);
        }
    });
}

TEST_CASE("a step cannot begin twice") {
    test::on_ranks([](dptk::ProcessGroup& group) {
        Vectors values = {{1}}, gradients = {{1}};
        dptk::DistributedDataParallel ddp(group, values, gradients);
        ddp.begin_step(3);
        CHECK_THROWS_AS(ddp.begin_step(3), dptk::ArgumentError);
        ddp.synchronize();
    });
}

TEST_CASE("a model without parameters, or whose parameters have no elements yet, is an error on all ranks") {
    test::on_ranks([](dptk::ProcessGroup& group) {
        const auto check = [&](Vectors values, const dptk::DistributedDataParallelOptions& options,
                               const std::vector<std::string>& parts) {
            std::string text;
            Vectors gradients = values;
            CHECK(test::throws<dptk::ArgumentError>(
                text, [&] { const dptk::DistributedDataParallel ddp(group, values, gradients, options); },
                test::Agreed::yes));
            for (const std::string& part : parts) CHECK_MESSAGE(test::contains(text, part), text);
        };
        check({}, {}, {"the model has no parameters yet", "values and gradients", "member", "free function"});
        check({{}, {}}, {}, {"the model's 2 parameters have no elements yet"});
        check({{1}}, {.parameters_to_ignore = {"[0]"}}, {"parameters_to_ignore names all 1 parameters"});
    });
}

TEST_CASE("doubles that are compared between ranks are compared exactly") {
    test::on_ranks([](dptk::ProcessGroup& group) {
        if (group.size() == 1) return;
        const double cap = group.rank() == culprit(group) ? 4e-7 : 1e-7;
        check_agreed<dptk::MismatchError>(group, {"bucket_cap_mb", "4e-07", "1e-07"}, [&] {
            Vectors values = {{1}}, gradients = {{1}};
            const dptk::DistributedDataParallel ddp(group, values, gradients, {.bucket_cap_mb = cap});
        });
    });
}

TEST_CASE("a parameter whose shape changes after construction is an error of the step on all ranks") {
    test::on_ranks([](dptk::ProcessGroup& group) {
        std::vector<Array> values = {Array({2, 3})}, gradients = {Array({2, 3})};
        dptk::DistributedDataParallel ddp(group, values, gradients);
        ddp.synchronize();
        check_agreed<dptk::ArgumentError>(group, {"parameter [0] was of shape [2, 3]", "is of shape [3, 2]"},
                                          [&] {
                                              if (group.rank() == culprit(group))
                                                  values[0].extents = gradients[0].extents = {3, 2};
                                              ddp.synchronize();
                                          });
    });
}
