// verify_parameters_every: replicas whose values differ are found, and named, on all ranks.
#include <doctest/doctest.h>
#include <dptk/ddp.hpp>
#include <dptk/ddp/hooks/post_local_sgd.hpp>
#include <dptk/ddp/join.hpp>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "ddp/small_net.hpp"
#include "support/debug_mode.hpp"
#include "support/ranks.hpp"

namespace {

using dptk::ProcessGroup;
using dptk::Ready;
using DriftNet = test::SmallNet<float>;

void compare_step(dptk::DistributedDataParallel& ddp, DriftNet& net, Ready ready) {
    if (ready == Ready::marked)
        for (const std::size_t i : {3U, 2U, 1U, 0U}) ddp.mark_ready(i);
    ddp.synchronize();
    for (std::size_t p = 0; p < net.values.size(); ++p) {
        for (std::size_t i = 0; i < net.values[p].size(); ++i)
            net.values[p][i] -= 0.1F * net.gradients[p][i] + 0.01F;
    }
}

}  // namespace

TEST_CASE("a changed weight is found in the next step that compares, on all ranks") {
    test::on_ranks([](ProcessGroup& group) {
        if (group.size() == 1) return;
        for (const Ready ready : {Ready::at_synchronize, Ready::marked}) {
            for (const int odd : {0, group.size() - 1}) {
                DriftNet net(0);
                dptk::DistributedDataParallel ddp(
                    group, net.values, net.gradients,
                    {.bucket_cap_mb = test::one_byte, .ready = ready, .verify_parameters_every = 5});
                for (int i = 0; i < 12; ++i) compare_step(ddp, net, ready);
                if (group.rank() == odd) net.values[2][3] = std::nextafter(net.values[2][3], 1.0F);
                for (int i = 12; i < 15; ++i) CHECK_NOTHROW(compare_step(ddp, net, ready));
                std::string text;
                CHECK(test::throws<dptk::MismatchError>(
                    text, [&] { compare_step(ddp, net, ready); }, test::Agreed::yes));
                CHECK_MESSAGE(test::contains(text, "before step 15: parameter [2] has other values on rank"),
                              text);
                if (group.size() > 2)
                    CHECK_MESSAGE(test::contains(text, "on rank " + std::to_string(odd) + " than on ranks "),
                                  text);
                ddp.broadcast_values(0);
                for (int i = 0; i < 7; ++i) CHECK_NOTHROW(compare_step(ddp, net, ready));
            }
        }
    });
}

TEST_CASE("a step that is canceled, and compares, is no drift") {
    test::on_ranks([](ProcessGroup& group) {
        DriftNet net(0);
        dptk::DistributedDataParallel ddp(group, net.values, net.gradients, {.verify_parameters_every = 1});
        for (int i = 0; i < 2; ++i) compare_step(ddp, net, Ready::at_synchronize);
        std::string text;
        if (group.rank() == 0) {
            CHECK_NOTHROW(ddp.cancel_step());
        } else {
            CHECK(test::throws<dptk::ArgumentError>(
                text, [&] { ddp.synchronize(); }, test::Agreed::yes));
            CHECK_MESSAGE(test::contains(text, "rank 0: canceled the step"), text);
        }
        CHECK_NOTHROW(compare_step(ddp, net, Ready::at_synchronize));
    });
}

TEST_CASE("values that move between steps are compared at their current addresses") {
    test::on_ranks([](ProcessGroup& group) {
        DriftNet net(0);
        dptk::DistributedDataParallel ddp(group, net.values, net.gradients, {.verify_parameters_every = 1});
        for (int i = 0; i < 4; ++i) {
            auto copy = net.values;
            for (auto& value : net.values) std::ranges::fill(value, static_cast<float>(group.rank()));
            net.values.swap(copy);
            ddp.begin_step();
            CHECK_NOTHROW(compare_step(ddp, net, Ready::at_synchronize));
        }
    });
}

TEST_CASE("values are not compared by default, and are in debug mode") {
    test::on_ranks([](ProcessGroup& group) {
        if (group.size() == 1 || test::is_launched()) return;
        DriftNet net(0);
        dptk::DistributedDataParallel ddp(group, net.values, net.gradients);
        if (group.rank() == 0) net.values[0][0] = 7;
        for (int i = 0; i < 202; ++i) CHECK_NOTHROW(compare_step(ddp, net, Ready::at_synchronize));
    });
    if (test::is_launched()) return;
    const test::DebugMode debug("detail");
    dptk::launch_threads(2, [](ProcessGroup& group) {
        DriftNet net(0);
        dptk::DistributedDataParallel ddp(group, net.values, net.gradients);
        if (group.rank() == 0) net.values[0][0] = 7;
        for (int i = 0; i < 100; ++i) compare_step(ddp, net, Ready::at_synchronize);
        CHECK_THROWS_AS(compare_step(ddp, net, Ready::at_synchronize), dptk::MismatchError);
    });
}

TEST_CASE("ignored parameters, local steps and ranks without batches may differ") {
    test::on_ranks([](ProcessGroup& group) {
        DriftNet net(group.rank());
        dptk::DistributedDataParallel ignores(
            group, net.values, net.gradients,
            {.verify_parameters_every = 1, .parameters_to_ignore = {"[1]"}});
        for (int i = 0; i < 3; ++i) CHECK_NOTHROW(compare_step(ignores, net, Ready::at_synchronize));

        DriftNet local(0);
        dptk::DistributedDataParallel ddp(group, local.values, local.gradients,
                                          {.verify_parameters_every = 1});
        ddp.set_comm_hook(dptk::hooks::post_local_sgd(group.split(group.rank()), {.start_step = 2}));
        for (int i = 0; i < 5; ++i) {
            for (auto& gradient : local.gradients)
                std::ranges::fill(gradient, 1.0F + static_cast<float>(group.rank()));
            CHECK_NOTHROW(compare_step(ddp, local, Ready::at_synchronize));
        }

        DriftNet joined(0);
        dptk::DistributedDataParallel uneven(group, joined.values, joined.gradients,
                                             {.verify_parameters_every = 1});
        dptk::Join join(group);
        join.add(uneven);
        for (int batch = 0; batch <= group.rank(); ++batch) {
            join.begin_step();
            CHECK_NOTHROW(compare_step(uneven, joined, Ready::at_synchronize));
        }
        CHECK_NOTHROW(join.finish());
    });
}
