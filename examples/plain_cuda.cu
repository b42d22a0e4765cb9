// An existing training loop with its own kernels and raw device memory, made data-parallel. Numbered comments
// mark the five places that use dptk. Run two ranks, each with its own GPU:
//   dptk-run --nproc-per-node 2 -- plain_cuda
#include <dptk/ddp.hpp>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <span>
#include <vector>

// The task is to classify whether a point lies inside a circle. The 4,096 points are generated, and always
// the same.
struct Point {
    float x, y, inside;
};

std::vector<Point> make_points() {
    std::vector<Point> points;
    for (int i = 0; i < 4096; ++i) {
        const float x = 2.0F * std::fmod(0.618034F * static_cast<float>(i), 1.0F) - 1.0F;
        const float y = 2.0F * std::fmod(0.754878F * static_cast<float>(i), 1.0F) - 1.0F;
        points.push_back({x, y, x * x + y * y < 0.5F ? 1.0F : 0.0F});
    }
    return points;
}

// The network: 2 inputs, a warp of hidden units, 1 output.
constexpr int hidden = 32;
constexpr int sizes[] = {2 * hidden, hidden, hidden, 1};

struct Parameters {
    float *inputs, *biases, *outputs, *bias;
};

// Computes the gradients of half the mean squared error over a batch, with one thread for each hidden unit.
// Adds the sum of the batch's squared errors to `total`.
__global__ void learn(const Point* points, const unsigned* batch, int samples, Parameters value,
                      Parameters gradient, float* total) {
    const int h = threadIdx.x;
    const float to_x = value.inputs[2 * h], to_y = value.inputs[2 * h + 1];
    float of_x = 0, of_y = 0, of_bias = 0, of_output = 0, of_last = 0, squares = 0;
    for (int i = 0; i < samples; ++i) {
        const Point point = points[batch[i]];
        const float activation = tanhf(to_x * point.x + to_y * point.y + value.biases[h]);
        float sum = value.outputs[h] * activation;
        for (int lane = hidden / 2; lane > 0; lane /= 2) sum += __shfl_xor_sync(~0U, sum, lane);
        const float error = sum + value.bias[0] - point.inside;
        const float before = error * value.outputs[h] * (1 - activation * activation);
        of_x += before * point.x;
        of_y += before * point.y;
        of_bias += before;
        of_output += error * activation;
        of_last += error;
        squares += error * error;
    }
    const float share = 1.0F / static_cast<float>(samples);
    gradient.inputs[2 * h] = of_x * share;
    gradient.inputs[2 * h + 1] = of_y * share;
    gradient.biases[h] = of_bias * share;
    gradient.outputs[h] = of_output * share;
    if (h == 0) {
        gradient.bias[0] = of_last * share;
        *total += squares;
    }
}

__global__ void descend(float* value, const float* gradient, int count, float lr) {
    const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
    if (i < count) value[i] -= lr * gradient[i];
}

void check(cudaError_t status) {
    if (status == cudaSuccess) return;
    std::fprintf(stderr, "plain_cuda: %s\n", cudaGetErrorString(status));
    std::exit(1);
}

template <class T>
T* on_device(const std::vector<T>& elements) {
    void* memory = nullptr;
    check(cudaMalloc(&memory, elements.size() * sizeof(T)));
    check(cudaMemcpy(memory, elements.data(), elements.size() * sizeof(T), cudaMemcpyHostToDevice));
    return static_cast<T*>(memory);
}

int main() {
    if (dptk::cuda::device_count() == 0) {
        std::puts("SKIPPED: no CUDA device");
        return 0;
    }
    dptk::ProcessGroup group = dptk::init_process_group();                 // 1: connect the ranks
    dptk::cuda::set_device(dptk::cuda::local_device(group.local_rank()));  // 2: select a GPU

    const std::vector<Point> host_points = make_points();
    const Point* points = on_device(host_points);
    unsigned* batch_on_device = on_device(std::vector<unsigned>(16));
    float* total = on_device(std::vector<float>{0});
    std::vector<float*> values, gradients;
    for (const int size : sizes) {
        std::vector<float> start;
        for (int i = 0; i < size; ++i) start.push_back(std::sin(static_cast<float>(7 * i + 1)));
        values.push_back(on_device(start));
        gradients.push_back(on_device(std::vector<float>(start.size())));
    }
    const Parameters value = {values[0], values[1], values[2], values[3]};
    const Parameters gradient = {gradients[0], gradients[1], gradients[2], gradients[3]};

    // 3: list the parameters and gradients: a pointer and a size for each
    std::vector<dptk::DeviceSpan<float>> value_spans, gradient_spans;
    for (std::size_t p = 0; p < values.size(); ++p) {
        value_spans.push_back(dptk::cuda::device_span(values[p], sizes[p]));
        gradient_spans.push_back(dptk::cuda::device_span(gradients[p], sizes[p]));
    }
    dptk::DistributedDataParallel ddp(group, value_spans, gradient_spans);
    dptk::DistributedSampler sampler(host_points, group);  // 4: was: a shuffled list of all indices

    float loss = 0;
    for (int epoch = 0; epoch < 20; ++epoch) {
        sampler.set_epoch(epoch);
        for (const std::span<const std::size_t> batch : dptk::BatchSampler(sampler, 16)) {
            const std::vector<unsigned> indices(batch.begin(), batch.end());
            check(cudaMemcpy(batch_on_device, indices.data(), indices.size() * sizeof(unsigned),
                             cudaMemcpyHostToDevice));
            learn<<<1, hidden>>>(points, batch_on_device, static_cast<int>(batch.size()), value, gradient,
                                 total);
            ddp.synchronize(batch.size());  // 5: average the gradients, after `learn` and before `descend`
            for (std::size_t p = 0; p < values.size(); ++p)
                descend<<<1, 64>>>(values[p], gradients[p], sizes[p], 0.1F);
        }
        check(cudaMemcpy(&loss, total, sizeof loss, cudaMemcpyDeviceToHost));
        check(cudaMemset(total, 0, sizeof loss));
        loss = group.all_reduce_value(loss / static_cast<float>(sampler.size()), dptk::ReduceOp::avg);
        if (group.rank() == 0 && epoch % 5 == 4) std::printf("epoch %2d: loss %.4f\n", epoch + 1, loss);
    }
    ddp.check();  // throws the errors of the last step
    return loss < 0.1F ? 0 : 1;
}
