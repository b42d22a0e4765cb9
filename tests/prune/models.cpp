#include <doctest/doctest.h>
#include <dptk/nn/models.hpp>

#include <string>

#include "dptk/prune/prune.hpp"
#include "support.hpp"
#include "support/ranks.hpp"

#ifdef DPTK_WITH_ONEDNN
#include "dptk/nn/cpu/backend.hpp"
#include "dptk/nn/cpu/threads.hpp"
#endif

using namespace dptk::nn;
using namespace dptk::nn::testing;

namespace {

Graph small(const std::string& model) {
    const bool is_gray = model == "convnet_mnist" || model == "lenet";
    return make_model(model, {.input = {is_gray ? 1U : 3U, 32, 32}, .classes = 10});
}

}  // namespace

TEST_CASE("models without the pruned channels compute what the masked models compute") {
    for (const std::string name :
         {"lenet", "convnet_mnist", "resnet18", "resnet50", "resnest50", "mobilenet_v2"}) {
        CAPTURE(name);
        CHECK(error_of_pruning<Reference<double>>(small(name), {.ratio = 0.6}, 1) < 1e-12);
    }
}

TEST_CASE("models are pruned by their batch norms") {
    const PruningOptions options{
        .score = FilterScore::slim, .ratio = 0.4, .scope = PruningScope::network, .multiple_of = 8};
    CHECK(error_of_pruning<Reference<double>>(small("mobilenet_v2"), options, 1) < 1e-12);
}

#ifdef DPTK_WITH_ONEDNN
TEST_CASE("models on oneDNN without the pruned channels compute what the masked models compute") {
    cpu::set_num_threads(1);  // threads that spin take long if other tests use the cores
    for (const std::string name : {"convnet_mnist", "resnet18", "resnet50", "mobilenet_v2"}) {
        CAPTURE(name);
        CHECK(error_of_pruning<Cpu>(small(name), {.ratio = 0.5}, 1) < 1e-5);
    }
}
#endif

TEST_CASE("half of the channels of a ResNet-50 make a quarter of its FLOPs") {
    const Graph graph = resnet(50, {.input = {3, 224, 224}});
    Network<Reference<float>> net(graph, 1);
    const PruningPlan plan = plan_pruning(net, {.ratio = 0.5});
    const NetworkCost before = cost_of(graph), after = cost_of(prune(graph, plan));
    CHECK(before == NetworkCost{25557032, 8178368512 / 2});
    CHECK(static_cast<double>(after.multiplications) / static_cast<double>(before.multiplications) ==
          doctest::Approx(0.25).epsilon(0.1));
    CHECK(test::contains(pruning_report(graph, plan), "32 of 64 channels of layer1.0.conv1\n"));
}

TEST_CASE("split attention keeps its channels, and its bottlenecks are pruned") {
    const Graph graph = small("resnest50");
    const ChannelGroups channels = channel_groups(graph);
    CHECK_FALSE(group_of(channels, graph, "layer1.0.conv2.conv").is_prunable());
    CHECK_FALSE(group_of(channels, graph, "layer1.0.conv2.fc2").is_prunable());
    CHECK_FALSE(group_of(channels, graph, "layer1.0.conv1").is_prunable());
    CHECK(group_of(channels, graph, "layer1.0.conv2.fc1").is_prunable());
    CHECK(group_of(channels, graph, "layer1.0.conv3").is_prunable());
}
