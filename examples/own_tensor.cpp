// A custom tensor class, and a layer that holds two tensors. Build and run:
//   mpicxx -std=c++20 -DDPTK_WITH_MPI -I include examples/own_tensor.cpp -o own_tensor
//   mpirun -np 2 ./own_tensor
#include <dptk/ddp.hpp>

#include <array>
#include <cstddef>
#include <cstdio>
#include <vector>

// A tensor can be a parameter if it is a contiguous range of float or double: it needs begin(), end(), data()
// and size(). If it also has shape(), dptk compares the dimensions between ranks and shows them in messages.
class Tensor {
  public:
    Tensor(std::size_t rows, std::size_t columns) : shape_{rows, columns}, elements_(rows * columns) {}

    [[nodiscard]] float* begin() { return elements_.data(); }
    [[nodiscard]] float* end() { return elements_.data() + elements_.size(); }
    [[nodiscard]] float* data() { return elements_.data(); }
    [[nodiscard]] std::size_t size() const { return elements_.size(); }
    [[nodiscard]] const std::array<std::size_t, 2>& shape() const { return shape_; }

    [[nodiscard]] float& operator()(std::size_t row, std::size_t column) {
        return elements_[row * shape_[1] + column];
    }

  private:
    std::array<std::size_t, 2> shape_;
    std::vector<float> elements_;
};

// A class that holds parameters enumerates them by name, in the same order on all ranks.
struct Layer {
    Tensor weight{2, 3}, weight_gradient{2, 3};
    Tensor bias{1, 3}, bias_gradient{1, 3};

    void for_each_parameter(auto& sink) {
        sink("weight", weight, weight_gradient);
        sink("bias", bias, bias_gradient);
    }
};

int main() {
    dptk::ProcessGroup group = dptk::init_process_group();
    std::vector<Layer> layers(2);
    dptk::DistributedDataParallel ddp(group, layers);

    for (Layer& layer : layers) {
        for (float& gradient : layer.weight_gradient) gradient = static_cast<float>(group.rank());
    }
    ddp.synchronize();

    if (group.rank() != 0) return 0;
    for (const dptk::ParameterRef& parameter : ddp.parameters())
        std::printf("%s: %zu x %zu\n", parameter.name.c_str(), parameter.shape[0], parameter.shape[1]);
    std::printf("mean gradient: %g\n", static_cast<double>(layers[1].weight_gradient(1, 2)));
}
