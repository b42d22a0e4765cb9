#include <doctest/doctest.h>
#include <dptk/ddp/bucket_plan.hpp>

#include <vector>

namespace {

using Indices = std::vector<std::vector<std::size_t>>;
using dptk::DType;

Indices plan(const std::vector<dptk::PlannedParameter>& parameters, const std::vector<std::size_t>& caps) {
    Indices indices;
    for (const dptk::Bucket& bucket : dptk::plan_buckets(parameters, caps))
        indices.push_back(bucket.parameters);
    return indices;
}

const std::vector<dptk::PlannedParameter> interleaved = {{50, DType::f32}, {25, DType::f64},
                                                         {50, DType::f32}, {25, DType::f64},
                                                         {50, DType::f32}, {25, DType::f64}};

}  // namespace

// The expected buckets are those of torch.distributed's _compute_bucket_assignment_by_size.

TEST_CASE("a bucket closes when its bytes reach the cap after a parameter was added") {
    CHECK(plan({{100}, {200}, {100}, {50}}, {400}) == Indices{{0}, {1}, {2}, {3}});
}

TEST_CASE("each dtype fills buckets of its own") {
    CHECK(plan(interleaved, {400}) == Indices{{0, 2}, {1, 3}, {4}, {5}});
}

TEST_CASE("each dtype uses the caps from the first on, and the last cap applies to all further buckets") {
    CHECK(plan(interleaved, {200, 400}) == Indices{{0}, {1}, {2, 4}, {3, 5}});
    CHECK(plan({{10}, {10}, {10}, {10}}, {40, 80}) == Indices{{0}, {1, 2}, {3}});
}

TEST_CASE("each device fills buckets of its own") {
    const dptk::Device gpu{dptk::DeviceType::cuda, 0};
    CHECK(plan({{10, DType::f32}, {10, DType::f32, gpu}, {10, DType::f32}}, {1000}) == Indices{{0, 2}, {1}});
}

TEST_CASE("a cap of one byte gives every parameter its bucket, a huge one puts all into one") {
    CHECK(plan({{3}, {2}, {1}}, {1}) == Indices{{0}, {1}, {2}});
    CHECK(plan({{3}, {2}, {1}}, {std::size_t{1} << 50}) == Indices{{0, 1, 2}});
}

TEST_CASE("nothing to plan gives no buckets, and no cap is an error") {
    CHECK(plan({}, {400}).empty());
    CHECK(plan({{0}, {0}}, {400}) == Indices{{0, 1}});
    CHECK_THROWS_AS(plan({{1}}, {}), dptk::ArgumentError);
}
