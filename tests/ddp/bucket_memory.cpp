// The memory of buckets: how long it exists, how much there is at once, and what stays in it.
#include <doctest/doctest.h>
#include <dptk/ddp.hpp>
#include <dptk/ddp/join.hpp>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <span>
#include <thread>
#include <vector>

#include "ddp/small_net.hpp"
#include "support/messages_only.hpp"
#include "support/ranks.hpp"

namespace {

using dptk::ProcessGroup;
using dptk::Ready;

/// A transport that counts the bytes of its memory.
class CountingTransport : public test::MessagesOnly {
  public:
    struct Bytes {
        std::size_t now = 0;
        std::size_t most = 0;
    };

    CountingTransport(const dptk::detail::ThreadJob& job, int rank, Bytes& bytes)
        : test::MessagesOnly(job, rank), bytes_(&bytes) {}

    [[nodiscard]] dptk::TransportCapabilities capabilities() const override { return {.allocate = true}; }
    [[nodiscard]] std::shared_ptr<void> allocate(std::size_t bytes) override {
        bytes_->now += bytes;
        bytes_->most = std::max(bytes_->most, bytes_->now);
        void* const data = std::aligned_alloc(64, (bytes + 63) / 64 * 64);
        return {data, [counts = bytes_, bytes](void* memory) {
                    std::free(memory);
                    counts->now -= bytes;
                }};
    }

  private:
    Bytes* bytes_;
};

/// A model whose gradients lie in their buckets.
struct InBuckets {
    std::vector<std::vector<double>> values = {{0, 0}, {0}};
    std::vector<std::vector<double>> before = values;
    std::vector<std::span<double>> gradients = {before[0], before[1]};

    void for_each_parameter(dptk::ParameterSink& sink) {
        sink("a", values[0], gradients[0]);
        sink("b", values[1], gradients[1]);
    }

    void move_into(dptk::DistributedDataParallel& ddp) {
        for (std::size_t i = 0; i < 2; ++i) gradients[i] = ddp.gradient_memory<double>(i);
    }
};

}  // namespace

TEST_CASE("the memory of a gradient exists as long as a copy of its owner") {
    test::on_ranks([](ProcessGroup& group) {
        InBuckets model;
        std::shared_ptr<void> owner;
        {
            dptk::DistributedDataParallel ddp(group, model);
            model.move_into(ddp);
            owner = ddp.gradient_memory_owner(1);
            CHECK_THROWS_AS(static_cast<void>(ddp.gradient_memory_owner(2)), dptk::ArgumentError);
        }
        std::ranges::fill(model.gradients[1], 5);  // found by AddressSanitizer without the owner
        CHECK(model.gradients[1][0] == 5);
    });
}

TEST_CASE("rebuilding buckets frees the previous ones first") {
    if (test::is_launched()) return;
    const dptk::detail::ThreadJob job(1, {});
    CountingTransport::Bytes bytes;
    {
        ProcessGroup group = dptk::BasicCommunicator(CountingTransport(job, 0, bytes));
        std::vector<std::vector<float>> values(4, std::vector<float>(10000)), gradients = values;
        dptk::DistributedDataParallel ddp(group, values, gradients,
                                          {.bucket_cap_mb = test::one_byte, .ready = Ready::marked});
        const std::size_t at_construction = bytes.most;
        CHECK(at_construction >= 4 * 10000 * sizeof(float));
        for (int step = 0; step < 2; ++step) {
            for (const std::size_t i : {0U, 3U, 1U, 2U}) ddp.mark_ready(i);
            ddp.synchronize();
        }
        CHECK(ddp.statistics().bucket_bytes.size() == 4);
        CHECK(bytes.most == at_construction);
    }
    CHECK(bytes.now == 0);
}

TEST_CASE("the gradients of a single rank are their averages, and are not copied into buckets") {
    if (test::is_launched()) return;
    dptk::launch_threads(1, [](ProcessGroup& group) {
        std::vector<std::vector<double>> values = {{0, 0}, {0}}, gradients = values;
        dptk::DistributedDataParallel ddp(group, values, gradients, {.ready = Ready::marked});
        const std::span<double> in_bucket = ddp.gradient_memory<double>(0);
        const auto step = [&](std::size_t samples, bool uses_second) {
            gradients = {{1, 2}, {3}};
            ddp.begin_step(samples);
            if (samples > 0) ddp.mark_ready(0);
            if (samples > 0 && uses_second) ddp.mark_ready(1);
            if (samples > 0 && !uses_second) ddp.mark_unused(1);
            ddp.synchronize();
        };
        step(5, true);
        CHECK(gradients == std::vector<std::vector<double>>{{1, 2}, {3}});
        CHECK(in_bucket[1] == 0);
        step(5, false);
        CHECK(gradients == std::vector<std::vector<double>>{{1, 2}, {0}});
        step(0, true);
        CHECK(gradients == std::vector<std::vector<double>>{{0, 0}, {0}});
        gradients = {{1, 2}, {3}};
        ddp.accumulate(1);
        gradients = {{3, 4}, {5}};
        ddp.begin_step(1);
        for (const std::size_t i : {0U, 1U}) ddp.mark_ready(i);
        ddp.synchronize();
        CHECK(gradients == std::vector<std::vector<double>>{{2, 3}, {4}});
    });
}

TEST_CASE("a gradient that no rank uses stays unchanged in its bucket") {
    test::on_ranks([](ProcessGroup& group) {
        InBuckets model;
        dptk::DistributedDataParallel ddp(
            group, model,
            {.bucket_cap_mb = test::one_byte, .ready = Ready::marked, .find_unused_parameters = true});
        model.move_into(ddp);
        for (int step = 0; step < 3; ++step) {
            std::ranges::fill(model.gradients[0], group.rank());
            model.gradients[1][0] = 7 + group.rank();
            ddp.mark_ready(0);
            ddp.synchronize();
            CHECK(model.gradients[0][1] == doctest::Approx((group.size() - 1) / 2.0));
            CHECK(model.gradients[1][0] == 7 + group.rank());
        }
        if (group.rank() == 0) ddp.mark_ready(1);
        ddp.mark_ready(0);
        ddp.synchronize();
        CHECK(model.gradients[1][0] == doctest::Approx(7.0 / group.size()));
    });
}

TEST_CASE("a rank that has run out of batches keeps its gradients in their buckets") {
    test::on_ranks([](ProcessGroup& group) {
        for (const Ready ready : {Ready::at_synchronize, Ready::marked}) {
            InBuckets model;
            dptk::DistributedDataParallel ddp(group, model, {.ready = ready});
            model.move_into(ddp);
            dptk::Join join(group);
            join.add(ddp);
            for (int batch = 0; batch <= group.rank(); ++batch) {
                join.begin_step();
                for (const std::span<double> gradient : model.gradients) std::ranges::fill(gradient, 1);
                if (ready == Ready::marked)
                    for (const std::size_t i : {1U, 0U}) ddp.mark_ready(i);
                ddp.synchronize();
            }
            const double last = model.gradients[0][1];
            CHECK(last == doctest::Approx(static_cast<double>(group.size() - group.rank()) / group.size()));
            join.finish();
            CHECK(model.gradients[0][1] == last);
            CHECK(model.gradients[1][0] == last);
        }
    });
}

TEST_CASE("gradients may be marked from several threads, the first mark of a step as well") {
    test::on_ranks([](ProcessGroup& group) {
        std::vector<std::vector<double>> values(8, std::vector<double>(3)), gradients = values;
        dptk::DistributedDataParallel ddp(group, values, gradients,
                                          {.bucket_cap_mb = test::one_byte, .ready = Ready::marked});
        for (int step = 0; step < 20; ++step) {
            for (auto& gradient : gradients) std::ranges::fill(gradient, group.rank());
            std::vector<std::thread> threads;
            for (std::size_t t = 0; t < 4; ++t) {
                threads.emplace_back([&, t] {
                    ddp.mark_ready(2 * t);
                    ddp.mark_ready(2 * t + 1);
                });
            }
            for (std::thread& thread : threads) thread.join();
            ddp.synchronize();
            for (const auto& gradient : gradients)
                CHECK(gradient[2] == doctest::Approx((group.size() - 1) / 2.0));
        }
    });
}
