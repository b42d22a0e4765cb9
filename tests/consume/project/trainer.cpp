#include <dptk/train.hpp>

#ifdef DPTK_WITH_ONEDNN
using Backend = dptk::nn::Cpu;
#else
using Backend = dptk::nn::Reference<float>;
#endif

int main() {
    dptk::ProcessGroup group = dptk::init_process_group();
    dptk::nn::Network<Backend> net(dptk::nn::make_model("lenet", {.input = {1, 8, 8}, .classes = 10}), 1);
    dptk::ImageDataset dataset(std::vector<std::uint8_t>(640), std::vector<std::size_t>{10, 8, 8},
                               std::vector<std::uint8_t>(10), {.classes = 10});
    dptk::Trainer trainer(group, net, {.epochs = 1, .batch_size = 4});
    return trainer.train_epoch(dataset, 0).samples == 10 ? 0 : 1;
}
