// Lazy gradients, whose memory is allocated in backward, as in programs that record a tape.
#include <doctest/doctest.h>
#include <dptk/ddp/data_parallel.hpp>
#include <dptk/ddp/reproducible.hpp>
#include <dptk/ddp/sharded_optimizer.hpp>
#include <dptk/optim/sgd.hpp>

#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "support/ranks.hpp"

namespace {

using dptk::ArgumentError;
using dptk::DistributedDataParallel;
using dptk::Ready;

/// A model that frees its gradients before each backward, and counts those that it was asked to allocate.
class TapedModel {
  public:
    explicit TapedModel(std::size_t parameters)
        : values_(parameters, std::vector<float>(3)), gradients_(parameters) {}

    void for_each_parameter(dptk::ParameterSink& sink) {
        for (std::size_t i = 0; i < values_.size(); ++i)
            sink(dptk::ParameterRef{.name = "p" + std::to_string(i),
                                    .shape = {3},
                                    .count = 3,
                                    .value = values_[i].data(),
                                    .lazy_gradient = [this, i](dptk::IfMissing if_missing) {
                                        return gradient_memory(i, if_missing);
                                    }});
    }

    void zero_grad() {
        for (auto& gradient : gradients_) gradient.reset();
        made_ = 0;
    }
    float* backward(std::size_t i, float gradient) {
        gradients_[i] = std::make_unique<std::vector<float>>(3, gradient);
        return gradients_[i]->data();
    }

    [[nodiscard]] bool has_gradient(std::size_t i) const { return gradients_[i] != nullptr; }
    [[nodiscard]] float gradient(std::size_t i) const { return gradients_[i]->at(2); }
    [[nodiscard]] int made() const { return made_; }

  private:
    void* gradient_memory(std::size_t i, dptk::IfMissing if_missing) {
        if (!gradients_[i]) {
            if (if_missing == dptk::IfMissing::null) return nullptr;
            gradients_[i] = std::make_unique<std::vector<float>>(3, 100.0F);
            ++made_;
        }
        return gradients_[i]->data();
    }

    std::vector<std::vector<float>> values_;
    std::vector<std::unique_ptr<std::vector<float>>> gradients_;
    int made_ = 0;
};

float mean_rank(const dptk::ProcessGroup& group) {
    return static_cast<float>(group.size() - 1) / 2;
}

}  // namespace

TEST_CASE("a lazy gradient is averaged at the address that its mark gives, in each step") {
    test::on_ranks([](dptk::ProcessGroup& group) {
        TapedModel model(4);
        DistributedDataParallel ddp(group, model, {.bucket_cap_mb = 1e-6, .ready = Ready::marked});
        for (int step = 0; step < 4; ++step) {
            model.zero_grad();
            for (std::size_t i = 4; i-- > 0;)
                ddp.mark_ready(i, model.backward(i, static_cast<float>(group.rank() + step)));
            ddp.synchronize();
            for (std::size_t i = 0; i < 4; ++i)
                CHECK(model.gradient(i) == mean_rank(group) + static_cast<float>(step));
            CHECK(model.made() == 0);
        }
    });
}

TEST_CASE("a lazy gradient that some ranks use is allocated on the others; one that no rank uses is not") {
    test::on_ranks([](dptk::ProcessGroup& group) {
        TapedModel model(3);
        DistributedDataParallel ddp(group, model, {.ready = Ready::marked, .find_unused_parameters = true});
        for (int step = 0; step < 2; ++step) {
            model.zero_grad();
            ddp.mark_ready(0, model.backward(0, 1));
            if (group.rank() == 0) ddp.mark_ready(1, model.backward(1, static_cast<float>(group.size())));
            ddp.synchronize();
            CHECK(model.gradient(0) == 1);
            REQUIRE(model.has_gradient(1));
            CHECK(model.gradient(1) == 1);
            CHECK(!model.has_gradient(2));
            CHECK(model.made() == (group.rank() == 0 ? 0 : 1));
            CHECK(ddp.clip_grad_norm(1e-3).value() == doctest::Approx(std::sqrt(6.0)));
            CHECK(!model.has_gradient(2));
        }
    });
}

TEST_CASE("lazy gradients accumulate, and those that do not exist count as zeros") {
    test::on_ranks([](dptk::ProcessGroup& group) {
        TapedModel model(2);
        DistributedDataParallel ddp(group, model, {.ready = Ready::marked});
        for (int step = 0; step < 2; ++step) {
            for (int micro = 0; micro < 2; ++micro) {
                model.zero_grad();
                {
                    const auto local = ddp.no_sync();
                    ddp.mark_ready(0, model.backward(0, static_cast<float>(micro)));
                }
                ddp.accumulate(micro == 0 ? 1 : 3);
            }
            model.zero_grad();
            ddp.synchronize();
            CHECK(model.made() == 2);
            CHECK(model.gradient(0) == 0.75F);
            CHECK(model.gradient(1) == 0);
        }
    });
}

TEST_CASE(
    "a lazy gradient in its bucket is not copied, and one that lies elsewhere is an error on all ranks") {
    test::on_ranks([](dptk::ProcessGroup& group) {
        TapedModel model(1);
        std::vector<float*> views(1);
        DistributedDataParallel ddp(group, model, {.ready = Ready::marked, .gradient_as_bucket_view = true});
        auto* view = static_cast<float*>(ddp.gradient_buffer(0).data);
        for (int e = 0; e < 3; ++e) view[e] = static_cast<float>(group.rank());
        ddp.mark_ready(0, view);
        ddp.synchronize();
        CHECK(view[2] == mean_rank(group));

        std::string text;
        ddp.mark_ready(0, group.rank() == 0 ? model.backward(0, 1) : view);
        CHECK(test::throws<ArgumentError>(
            text, [&] { ddp.synchronize(); }, test::Agreed::yes));
        CHECK(test::contains(text, "gradient p0 is not at the address that gradient_memory(0) returns"));
    });
}

TEST_CASE("a lazy gradient that is replaced or freed after its mark is an error on all ranks") {
    test::on_ranks([](dptk::ProcessGroup& group) {
        TapedModel model(2);
        DistributedDataParallel ddp(group, model, {.bucket_cap_mb = 1e-6, .ready = Ready::marked});
        for (const bool is_freed : {false, true}) {
            for (std::size_t i = 2; i-- > 0;) ddp.mark_ready(i, model.backward(i, 1));
            if (group.rank() == group.size() - 1) is_freed ? model.zero_grad() : void(model.backward(1, 2));
            std::string text;
            CHECK(test::throws<ArgumentError>(
                text, [&] { ddp.synchronize(); }, test::Agreed::yes));
            CHECK_MESSAGE(test::contains(text, is_freed ? "gradient p0 has moved" : "gradient p1 has moved"),
                          text);
        }
    });
}

TEST_CASE("a lazy gradient is marked with its address, and no other gradient is") {
    test::on_ranks([](dptk::ProcessGroup& group) {
        TapedModel late(2);
        DistributedDataParallel ddp(group, late, {.ready = Ready::marked});
        std::string text;
        ddp.mark_ready(1, late.backward(1, 1));
        if (group.rank() == 0) {
            ddp.mark_ready(0);
        } else {
            ddp.mark_ready(0, late.backward(0, 1));
        }
        CHECK(test::throws<ArgumentError>(
            text, [&] { ddp.synchronize(); }, test::Agreed::yes));
        CHECK(test::contains(text, "the lazy gradient p0 was marked without its address"));

        std::vector<float> value(1);
        std::vector<float> gradient(1);
        DistributedDataParallel lasting(group, value, gradient, {.ready = Ready::marked});
        lasting.mark_ready(0, gradient.data());
        CHECK(test::throws<ArgumentError>(
            text, [&] { lasting.synchronize(); }, test::Agreed::yes));
        CHECK(test::contains(text, "was marked with an address: mark_ready(i, address) is only for"));
    });
}

TEST_CASE("a gradient that becomes lazy, or ceases to be, is an error on all ranks until it is as before") {
    test::on_ranks([](dptk::ProcessGroup& group) {
        struct Model {
            std::vector<float> values = std::vector<float>(2), gradients = values;
            bool is_lazy = false;
            void for_each_parameter(dptk::ParameterSink& sink) {
                dptk::ParameterRef parameter{.name = "w", .shape = {2}, .count = 2, .value = values.data()};
                if (!is_lazy) {
                    parameter.gradient = gradients.data();
                } else {
                    parameter.lazy_gradient = [this](dptk::IfMissing) { return gradients.data(); };
                }
                sink(parameter);
            }
        };
        for (const bool was_lazy : {false, true}) {
            Model model{.is_lazy = was_lazy};
            DistributedDataParallel ddp(group, model, {.ready = Ready::marked});
            const auto step = [&] {
                ddp.begin_step();
                if (was_lazy) {
                    ddp.mark_ready(0, model.gradients.data());
                } else {
                    ddp.mark_ready(0);
                }
                ddp.synchronize();
            };
            step();
            for (int k = 0; k < 2; ++k) {
                if (group.rank() == group.size() - 1) model.is_lazy = !was_lazy;
                std::string text;
                CHECK(test::throws<ArgumentError>(text, step, test::Agreed::yes));
                CHECK_MESSAGE(
                    test::contains(text, was_lazy ? "parameter w was with a lazy gradient at "
                                                    "construction, and is without a lazy gradient now"
                                                  : "parameter w was without a lazy gradient at "
                                                    "construction, and is with a lazy gradient now"),
                    text);
            }
            model.is_lazy = was_lazy;
            CHECK_NOTHROW(step());
        }
    });
}

TEST_CASE("lazy gradients are refused without marks, and by everything except DistributedDataParallel") {
    test::on_ranks([](dptk::ProcessGroup& group) {
        TapedModel model(1);
        std::string text;
        CHECK(test::throws<ArgumentError>(
            text, [&] { const DistributedDataParallel ddp(group, model); }, test::Agreed::yes));
        CHECK(test::contains(
            text, "Ready::at_synchronize does not support lazy gradients, but parameter p0 has one"));
        CHECK(test::throws<ArgumentError>(
            text,
            [&] {
                const dptk::ShardedOptimizer sharded(group, model, dptk::SGD<float>({.lr = 1}),
                                                     {.ready = Ready::marked});
            },
            test::Agreed::yes));
        CHECK(test::contains(text, "a sharded optimizer does not support lazy gradients"));
        CHECK(test::throws<ArgumentError>(
            text,
            [&] {
                const dptk::ReproducibleDataParallel shards(group, dptk::ParameterSource(model),
                                                            static_cast<std::size_t>(group.size()));
            },
            test::Agreed::yes));
        CHECK(test::contains(text, "ReproducibleDataParallel does not support lazy gradients"));
        if (group.rank() != 0) return;
        std::vector<TapedModel> replicas;
        replicas.emplace_back(1);
        replicas.emplace_back(1);
        CHECK_THROWS_WITH_AS(dptk::DataParallel{replicas},
                             doctest::Contains("DataParallel does not support lazy gradients"),
                             ArgumentError);
    });
}
