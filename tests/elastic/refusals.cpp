// What an elastic job refuses, because it could not continue with it.
#include <doctest/doctest.h>
#include <dptk/comm/tcp.hpp>
#include <dptk/ddp.hpp>
#include <dptk/ddp/elastic_state.hpp>
#include <dptk/ddp/hooks/compress.hpp>
#include <dptk/ddp/sharded_optimizer.hpp>
#include <dptk/optim/sgd.hpp>

#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "elastic/elastic_ranks.hpp"

namespace {

/// Whether the call throws an ArgumentError that contains this text.
template <class Call>
bool is_refused(std::string_view text, Call&& call) {
    try {
        call();
    } catch (const dptk::ArgumentError& error) {
        if (std::string_view(error.what()).find(text) != std::string_view::npos) return true;
        std::fprintf(stderr, "another text: %s\n", error.what());
        return false;
    }
    std::fprintf(stderr, "not refused: %.*s\n", static_cast<int>(text.size()), text.data());
    return false;
}

int count_accepted() {
    dptk::ProcessGroup group = dptk::init_process_group({.elastic = true});
    std::vector<float> values(10), gradients(10), mean(10);
    dptk::SGD<float> sgd({.lr = 0.1});
    dptk::DistributedDataParallel ddp(group, values, gradients);
    dptk::DistributedDataParallel other(group, values, gradients);
    dptk::ShardedOptimizer sharded(group, values, gradients, dptk::SGD<float>({.lr = 0.1}));
    dptk::ElasticState state(group, ddp, sgd);
    int accepted = 0;
    const auto refuse = [&](std::string_view text, auto&& call) {
        if (!is_refused(text, call)) ++accepted;
    };
    refuse("only once", [] { static_cast<void>(dptk::init_process_group({.elastic = true})); });
    refuse("ShardedOptimizer with fused steps does not support elastic jobs", [&] {
        dptk::ShardedOptimizer(group, values, gradients, dptk::SGD<float>({.lr = 0.1}), {},
                               {.fused_step = dptk::FusedStep::yes});
    });
    refuse("parameters_as_bucket_view does not support elastic jobs", [&] {
        dptk::ShardedOptimizer(group, values, gradients, dptk::SGD<float>({.lr = 0.1}), {},
                               {.parameters_as_bucket_view = true});
    });
    refuse("FunctionOptimizer does not support elastic jobs", [&] {
        dptk::ShardedOptimizer(group, values, gradients,
                               dptk::FunctionOptimizer<float>([](std::size_t, auto, auto) {}));
    });
    refuse("broadcast_buffers", [&] {
        dptk::DistributedDataParallel(
            group, values, gradients,
            {.buffers = dptk::BufferSource(std::tie(mean)), .broadcast_buffers = false});
    });
    refuse("hooks do not support elastic jobs", [&] { ddp.set_comm_hook(dptk::hooks::fp16_compress()); });
    refuse("has synchronized no gradients", [&] { state.commit(); });
    state.restore();
    refuse("hooks do not support elastic jobs", [&] { ddp.set_comm_hook(dptk::hooks::fp16_compress()); });
    refuse("has synchronized no gradients", [&] { state.commit(); });
    refuse("DistributedDataParallel does not belong to the ElasticState", [&] { other.synchronize(); });
    refuse("ShardedOptimizer does not belong to the ElasticState", [&] { sharded.synchronize(); });
    ddp.synchronize();
    state.commit();
    return accepted;
}

}  // namespace

TEST_CASE("an elastic job refuses what could not continue when its ranks change") {
    ElasticRanks ranks({.first_size = 2}, [](std::uint16_t) { return count_accepted(); });
    REQUIRE(ranks.run_until_all_have_ended());
    CHECK(ranks.failures() == 0);
}
