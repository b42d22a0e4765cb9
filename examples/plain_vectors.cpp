// An existing training loop over std::vector<std::vector<float>>, made data-parallel. Comments mark the lines
// that were added. Build and run:
//   mpicxx -std=c++20 -I include examples/plain_vectors.cpp -o plain_vectors && mpirun -np 2 ./plain_vectors
#include <dptk/comm/mpi.hpp>  // added
#include <dptk/ddp.hpp>       // added

#include <cmath>
#include <cstdio>
#include <span>
#include <vector>

// The task is to classify whether a point lies inside a circle. The 4,096 points are generated, and always
// the same.
struct Points {
    struct Point {
        float x, y, inside;
    };

    [[nodiscard]] std::size_t size() const { return 4096; }

    Point operator[](std::size_t i) const {
        const float x = 2.0F * std::fmod(0.618034F * static_cast<float>(i), 1.0F) - 1.0F;
        const float y = 2.0F * std::fmod(0.754878F * static_cast<float>(i), 1.0F) - 1.0F;
        return {x, y, x * x + y * y < 0.5F ? 1.0F : 0.0F};
    }
};

// The network: 2 inputs, 16 hidden units, 1 output.
struct Net {
    static constexpr std::size_t hidden = 16;
    std::vector<std::vector<float>> weights = {std::vector<float>(2 * hidden), std::vector<float>(hidden),
                                               std::vector<float>(hidden), std::vector<float>(1)};
    std::vector<std::vector<float>> gradients = weights;

    Net() {
        for (auto& weight : weights) {
            for (std::size_t i = 0; i < weight.size(); ++i)
                weight[i] = std::sin(static_cast<float>(7 * i + 1));
        }
    }

    // Adds the gradients of half the squared error of a point, divided by `samples`. Returns the squared
    // error.
    float learn(const Points::Point& point, float samples) {
        float activation[hidden];
        float output = weights[3][0];
        for (std::size_t h = 0; h < hidden; ++h) {
            activation[h] =
                std::tanh(weights[0][2 * h] * point.x + weights[0][2 * h + 1] * point.y + weights[1][h]);
            output += weights[2][h] * activation[h];
        }
        const float error = output - point.inside;
        gradients[3][0] += error / samples;
        for (std::size_t h = 0; h < hidden; ++h) {
            gradients[2][h] += error * activation[h] / samples;
            const float before = error * weights[2][h] * (1 - activation[h] * activation[h]) / samples;
            gradients[0][2 * h] += before * point.x;
            gradients[0][2 * h + 1] += before * point.y;
            gradients[1][h] += before;
        }
        return error * error;
    }

    void step(float lr) {
        for (std::size_t p = 0; p < weights.size(); ++p) {
            for (std::size_t i = 0; i < weights[p].size(); ++i) {
                weights[p][i] -= lr * gradients[p][i];
                gradients[p][i] = 0;
            }
        }
    }
};

int main() {
    dptk::ProcessGroup group = dptk::init_process_group();  // added
    const Points points;
    Net net;
    dptk::DistributedDataParallel ddp(group, net.weights, net.gradients);  // added
    dptk::DistributedSampler sampler(points, group);  // was: a shuffled list of all indices

    for (int epoch = 0; epoch < 20; ++epoch) {
        sampler.set_epoch(epoch);
        float loss = 0;
        for (const std::span<const std::size_t> batch : dptk::BatchSampler(sampler, 16)) {
            for (const std::size_t i : batch) loss += net.learn(points[i], static_cast<float>(batch.size()));
            ddp.synchronize();  // added
            net.step(0.1F);
        }
        loss =
            group.all_reduce_value(loss / static_cast<float>(sampler.size()), dptk::ReduceOp::avg);  // added
        if (group.rank() == 0 && epoch % 5 == 4) std::printf("epoch %2d: loss %.4f\n", epoch + 1, loss);
    }
}
