// Trains a multi-layer perceptron on handwritten digits, in the style of a C program: one array holds all
// parameters, one holds all gradients, and a table holds the sizes. Runs on any number of ranks:
//   mpirun -np 2 c_trainer_after examples/data/digits/
#include <dptk/adapters/pointer_table.hpp>
#include <dptk/comm/mpi.hpp>
#include <dptk/ddp.hpp>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "digits.hpp"

enum { inputs = 64, hidden = 32, classes = 10, tensors = 4 };

struct mlp {
    size_t sizes[tensors];  // first weights, first biases, second weights, second biases
    size_t parameter_count;
    float* params;
    float* grads;
};

static unsigned next_random(unsigned* state) {
    return *state = *state * 1664525U + 1013904223U;
}

static void mlp_init(mlp* net) {
    const size_t sizes[tensors] = {hidden * inputs, hidden, classes * hidden, classes};
    net->parameter_count = 0;
    for (int t = 0; t < tensors; ++t) net->parameter_count += net->sizes[t] = sizes[t];
    net->params = static_cast<float*>(std::calloc(net->parameter_count, sizeof(float)));
    net->grads = static_cast<float*>(std::calloc(net->parameter_count, sizeof(float)));
    unsigned state = 1;
    for (size_t i = 0; i < net->parameter_count; ++i)
        net->params[i] = 0.3F * (static_cast<float>(next_random(&state) >> 8) / 8388608.0F - 1.0F);
}

static void mlp_free(mlp* net) {
    std::free(net->params);
    std::free(net->grads);
}

// Adds the gradients of one sample, divided by `samples`. Returns its loss.
static float mlp_learn(mlp* net, const float* x, int label, size_t samples) {
    const float *w1 = net->params, *b1 = w1 + net->sizes[0], *w2 = b1 + net->sizes[1],
                *b2 = w2 + net->sizes[2];
    float *gw1 = net->grads, *gb1 = gw1 + net->sizes[0], *gw2 = gb1 + net->sizes[1],
          *gb2 = gw2 + net->sizes[2];
    float h[hidden], p[classes], gh[hidden] = {}, sum = 0, largest = -1e30F;
    for (int j = 0; j < hidden; ++j) {
        h[j] = b1[j];
        for (int i = 0; i < inputs; ++i) h[j] += w1[j * inputs + i] * x[i];
        h[j] = std::max(h[j], 0.0F);
    }
    for (int k = 0; k < classes; ++k) {
        p[k] = b2[k];
        for (int j = 0; j < hidden; ++j) p[k] += w2[k * hidden + j] * h[j];
        largest = std::max(largest, p[k]);
    }
    for (int k = 0; k < classes; ++k) sum += p[k] = std::exp(p[k] - largest);
    for (int k = 0; k < classes; ++k) {
        const float g = (p[k] / sum - (k == label ? 1.0F : 0.0F)) / static_cast<float>(samples);
        gb2[k] += g;
        for (int j = 0; j < hidden; ++j) {
            gw2[k * hidden + j] += g * h[j];
            gh[j] += g * w2[k * hidden + j];
        }
    }
    for (int j = 0; j < hidden; ++j) {
        if (h[j] <= 0) continue;
        gb1[j] += gh[j];
        for (int i = 0; i < inputs; ++i) gw1[j * inputs + i] += gh[j] * x[i];
    }
    return -std::log(p[label] / sum);
}

static void mlp_step(mlp* net, float lr) {
    for (size_t i = 0; i < net->parameter_count; ++i) {
        net->params[i] -= lr * net->grads[i];
        net->grads[i] = 0;
    }
}

static void shuffle(std::vector<size_t>& order, unsigned* state) {
    for (size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[next_random(state) % i]);
}

int main(int argc, char** argv) {
    const std::string folder = argc > 1 ? argv[1] : "examples/data/digits/";
    dptk::ProcessGroup group = dptk::init_process_group();
    const size_t rank = static_cast<size_t>(group.rank()), ranks = static_cast<size_t>(group.size());
    const Digits digits = read_digits(folder + "train-");
    mlp net;
    mlp_init(&net);
    std::vector<size_t> order(digits.size());
    for (size_t i = 0; i < order.size(); ++i) order[i] = i;
    unsigned state = 7;  // same order on all ranks; each rank processes its part of each batch
    dptk::DistributedDataParallel ddp(
        group, dptk::flat_table(net.params, net.grads, std::span<const size_t>(net.sizes)));

    for (int epoch = 0; epoch < 20; ++epoch) {
        shuffle(order, &state);
        float loss = 0;
        for (size_t first = 0; first < order.size(); first += 64) {
            const size_t last = std::min(first + 64, order.size());
            const size_t samples = (last - first + ranks - 1 - rank) / ranks;
            for (size_t i = first + rank; i < last; i += ranks)
                loss += mlp_learn(&net, digits.image(order[i]), digits.labels[order[i]], samples);
            ddp.synchronize(samples);
            mlp_step(&net, 0.2F);
        }
        loss = group.all_reduce_value(loss, dptk::ReduceOp::sum);
        if (rank != 0) continue;
        std::printf("epoch %d: loss %.4f\n", epoch + 1, loss / static_cast<float>(digits.size()));
    }
    mlp_free(&net);
}
