// Operations of the program's own in a network: a function of each element, and an operation with weights.
//   mpirun -np 2 own_operation DIGITS/train-
#include <dptk/data/readers/idx_images.hpp>
#include <dptk/nn/custom_operation.hpp>
#include <dptk/train.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

using dptk::nn::HostCall;
using dptk::nn::InputShapes;

/// x · min(max(x + 3, 0), 6) / 6.
struct HardSwish {
    static constexpr std::string_view name = "HardSwish";

    template <class T>
    static T value(T x) {
        return x * std::clamp(x + 3, T{0}, T{6}) / 6;
    }
    template <class T>
    static T derivative(T x) {
        return x < -3 ? T{0} : x > 3 ? T{1} : (2 * x + 3) / 6;
    }
};

/// Multiplies each element of a sample by a weight.
struct Scale {
    static constexpr std::string_view name = "Scale";

    dptk::Shape output_shape(InputShapes inputs) const { return inputs[0]; }

    std::vector<dptk::nn::ParameterSpec> parameters(InputShapes inputs) const {
        return {{.name = "weight", .shape = inputs[0], .initial = dptk::nn::Initial::ones}};
    }

    template <class T>
    void forward(const HostCall<T>& call) const {
        const std::size_t count = dptk::element_count(call.shapes[0]);
        for (std::size_t i = 0; i < call.output.size(); ++i)
            call.output[i] = call.inputs[0][i] * call.parameters[0][i % count];
    }
    template <class T>
    void backward_parameters(const HostCall<T>& call) const {
        const std::size_t count = dptk::element_count(call.shapes[0]);
        for (std::size_t i = 0; i < call.output.size(); ++i)
            call.parameter_gradients[0][i % count] += call.output_gradient[i] * call.inputs[0][i];
    }
    template <class T>
    void backward_inputs(const HostCall<T>& call) const {
        const std::size_t count = dptk::element_count(call.shapes[0]);
        for (std::size_t i = 0; i < call.output.size(); ++i)
            call.input_gradients[0][i] += call.output_gradient[i] * call.parameters[0][i % count];
    }
};

dptk::nn::Graph make_graph() {
    dptk::nn::Graph g({1, 8, 8});
    dptk::nn::Value x = g.linear("fc1", g.flatten(g.input()), {.out_features = 64});
    x = g.add_operation(dptk::nn::custom(HardSwish{}), {x});
    x = g.add_operation(dptk::nn::custom(Scale{}), {x}, "scale");  // its parameter is "scale.weight"
    g.linear("fc2", x, {.out_features = 10});
    return g;
}

int main(int, char** arguments) {
    dptk::ProcessGroup group = dptk::init_process_group();
    const std::string prefix = arguments[1];
    const dptk::ImageDataset digits = dptk::read_idx_images(prefix + "images-idx3-ubyte.gz",
                                                            prefix + "labels-idx1-ubyte.gz", {.classes = 10});
#ifdef DPTK_WITH_ONEDNN
    using Backend = dptk::nn::Cpu;
#else
    using Backend = dptk::nn::Reference<float>;
#endif
    dptk::nn::Network<Backend> net(make_graph(), 1);
    dptk::Trainer trainer(group, net,
                          {.epochs = 8, .sgd = {.lr = 0.05, .momentum = 0.9}, .pixel_scale = 1.0 / 16});
    for (int epoch = 0; epoch < 8; ++epoch) trainer.train_epoch(digits, epoch);
    const double accuracy = trainer.evaluate(digits).accuracy;
    if (group.rank() == 0) std::printf("accuracy: %.3f\n", accuracy);
}
