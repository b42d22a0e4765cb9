// Trains a network on a folder of images that has a folder for each class.
//   mpirun -np 2 image_folder FOLDER
#include <dptk/data/data_loader.hpp>
#include <dptk/data/images/image_folder.hpp>
#include <dptk/ddp.hpp>
#include <dptk/optim/sgd.hpp>
#include <dptk/train.hpp>

#include <cstdio>
#include <span>

int main(int, char** arguments) {
    dptk::ProcessGroup group = dptk::init_process_group();
    const dptk::ImageFolder images(arguments[1]);
    dptk::DistributedSampler sampler(images, group, {.seed = 7});
    dptk::DataLoader loader(images, sampler,
                            {.batch_size = 8,
                             .transform = {dptk::RandomResizedCrop(16), dptk::RandomHorizontalFlip(),
                                           dptk::Normalize(dptk::imagenet)}});

    dptk::nn::Network<dptk::nn::Reference<float>> net(
        dptk::nn::mlp({.input = {3, 16, 16}, .classes = images.classes()}), 1);
    dptk::DistributedDataParallel ddp(group, net);
    dptk::SGD<float> sgd({.lr = 0.01, .momentum = 0.9});
    dptk::Tensor<float> gradient;
    for (int epoch = 0; epoch < 15; ++epoch) {
        sampler.set_epoch(epoch);
        double loss = 0;
        for (const auto& [pixels, labels] : loader) {
            loss += dptk::nn::softmax_cross_entropy(net.forward(pixels), std::span(labels), gradient).loss;
            ddp.begin_step(labels.size());
            net.backward(gradient);
            ddp.synchronize();
            sgd.step(ddp.parameters());
        }
        loss = group.all_reduce_value(loss / static_cast<double>(loader.size()), dptk::ReduceOp::avg);
        if (group.rank() == 0) std::printf("epoch %d: loss %.4f\n", epoch + 1, loss);
    }
}
