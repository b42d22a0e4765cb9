// record DIR MODEL OPTIMIZER SCHEDULE: 50 steps of training on two ranks, and what each of them was like, for
// PyTorch to repeat (compare.py). Files of f64, parameters row-major in registration order:
//   weights     before each step
//   gradients   of each step, averaged
//   loss.RANK   of each step of a rank, over its own samples
// In double precision: in single, the last bit decides now and then which way a ReLU or a pooling goes.
// MODEL is mlp or convnet, OPTIMIZER sgd or adam. SCHEDULE: plain; accumulate (no_sync for all but the last
// of 3 micro-batches); uneven (rank 0 has 8 batches, and joins).
#include <dptk/comm/gloo.hpp>
#include <dptk/data/readers/idx_images.hpp>
#include <dptk/ddp.hpp>
#include <dptk/ddp/join.hpp>
#include <dptk/nn/loss.hpp>
#include <dptk/nn/models.hpp>
#include <dptk/nn/network.hpp>
#include <dptk/nn/reference/backend.hpp>
#include <dptk/optim/adam.hpp>
#include <dptk/optim/sgd.hpp>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <fstream>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

namespace {

constexpr std::size_t steps = 50;
constexpr std::size_t steps_of_the_short = 8;
constexpr std::size_t micro_batches = 3;
constexpr std::size_t batch_size = 8;

/// What stays of a step's sums until the next begins: a program's own gradients, into which it adds up.
struct Model {
    dptk::nn::Network<dptk::nn::Reference<double>> net;
    std::vector<std::vector<double>> sums;

    template <class Sink>
    void for_each_parameter(Sink&& sink) {
        std::size_t i = 0;
        net.for_each_parameter([&](dptk::ParameterRef parameter) {
            if (sums.size() <= i) sums.emplace_back(parameter.count);
            parameter.gradient = sums[i++].data();
            sink(parameter);
        });
    }
};

class Files {
  public:
    Files(const std::string& folder, int rank, bool writes_model)
        : losses_(folder + "/loss." + std::to_string(rank), std::ios::binary) {
        if (!writes_model) return;
        weights_.emplace(folder + "/weights", std::ios::binary);
        gradients_.emplace(folder + "/gradients", std::ios::binary);
    }

    void weights(Model& model) {
        if (!weights_) return;
        for (std::size_t i = 0; i < model.sums.size(); ++i) write(*weights_, model.net.parameter_values(i));
    }

    void gradients(const Model& model) {
        if (!gradients_) return;
        for (const std::vector<double>& gradient : model.sums) write(*gradients_, gradient);
    }

    void loss(double loss) { write(losses_, std::vector{loss}); }

  private:
    static void write(std::ofstream& file, const std::vector<double>& values) {
        file.write(reinterpret_cast<const char*>(values.data()),
                   static_cast<std::streamsize>(values.size() * sizeof(double)));
        if (!file) throw dptk::Error("the disk is full, or the folder is not there");
    }

    std::ofstream losses_;
    std::optional<std::ofstream> weights_;
    std::optional<std::ofstream> gradients_;
};

/// The samples of a micro-batch, from 0 on and around.
std::vector<std::size_t> samples_of(std::size_t micro_batch, const dptk::ProcessGroup& group,
                                    std::size_t dataset) {
    const auto ranks = static_cast<std::size_t>(group.size());
    const std::size_t first = (micro_batch * ranks + static_cast<std::size_t>(group.rank())) * batch_size;
    std::vector<std::size_t> samples(batch_size);
    for (std::size_t i = 0; i < batch_size; ++i) samples[i] = (first + i) % dataset;
    return samples;
}

template <class Optimizer>
void record(const std::string& folder, const std::string& model_name, const std::string& schedule,
            Optimizer optimizer) {
    dptk::ProcessGroup group = dptk::init_process_group();
    const std::string digits = DPTK_EXAMPLE_DATA_DIR "/digits/train-";
    const dptk::ImageDataset dataset = dptk::read_idx_images(
        digits + "images-idx3-ubyte.gz", digits + "labels-idx1-ubyte.gz", {.classes = 10});
    Model model{{dptk::nn::make_model(model_name, {.input = {1, 8, 8}, .classes = 10}), 7}, {}};
    dptk::DistributedDataParallel ddp(group, model, {.bucket_cap_mb = 0.1, .ready = dptk::Ready::marked});
    dptk::Join join(group);
    join.add(ddp);
    const bool is_uneven = schedule == "uneven";
    const std::size_t mine = is_uneven && group.rank() == 0 ? steps_of_the_short : steps;
    const std::size_t micro = schedule == "accumulate" ? micro_batches : 1;
    Files files(folder, group.rank(), group.rank() == group.size() - 1);

    dptk::Tensor<double> images({batch_size, 1, 8, 8});
    std::vector<std::uint8_t> labels(batch_size);
    dptk::Tensor<double> output_gradient;
    const auto backward = [&](std::size_t micro_batch, bool marks) {
        const std::vector<std::size_t> samples = samples_of(micro_batch, group, dataset.size());
        for (std::size_t i = 0; i < batch_size; ++i) {
            const dptk::LabeledImageRef image = dataset[samples[i]];
            for (std::size_t p = 0; p < 64; ++p) images[64 * i + p] = image.pixels[p] * (1.0 / 16);
            labels[i] = image.label;
        }
        const auto& logits = model.net.forward(images);
        const auto result = dptk::nn::softmax_cross_entropy(logits, labels, output_gradient);
        model.net.backward(output_gradient, [&](std::size_t i) {
            const std::vector<double> own = model.net.parameter_gradient(i);
            for (std::size_t e = 0; e < own.size(); ++e) model.sums[i][e] += own[e];
            if (marks) ddp.mark_ready(i);
        });
        return result.loss / static_cast<double>(micro);
    };

    for (std::size_t step = 0; step < mine; ++step) {
        if (is_uneven) join.begin_step();
        files.weights(model);
        double loss = 0;
        for (std::size_t m = 0; m + 1 < micro; ++m) {
            const auto local = ddp.no_sync();
            loss += backward(step * micro + m, true);
        }
        loss += backward(step * micro + micro - 1, true);
        ddp.synchronize();
        files.loss(loss);
        files.gradients(model);
        for (std::size_t i = 0; i < ddp.parameters().size(); ++i) {
            const dptk::ParameterRef& parameter = ddp.parameters()[i];
            optimizer.step(i, std::span(static_cast<double*>(parameter.value), parameter.count),
                           model.sums[i]);
            std::ranges::fill(model.sums[i], 0.0);
        }
    }
    if (is_uneven) join.finish();
}

}  // namespace

int main(int argc, char** argv) try {
    if (argc != 5)
        throw dptk::ArgumentError("usage: record DIR mlp|convnet sgd|adam plain|accumulate|uneven");
    const std::string optimizer = argv[3];
    if (optimizer == "sgd") {
        record(argv[1], argv[2], argv[4], dptk::SGD<double>({.lr = 0.02, .momentum = 0.9}));
    } else {
        record(argv[1], argv[2], argv[4], dptk::Adam<double>({.lr = 0.001}));
    }
    return 0;
} catch (const std::exception& error) {
    std::fprintf(stderr, "record: %s\n", error.what());
    return 1;
}
