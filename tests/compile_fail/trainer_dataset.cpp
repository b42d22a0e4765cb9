// A Trainer's dataset whose samples are of a class.
#include <dptk/train.hpp>

#include <utility>
#include <vector>

struct Sample {
    std::vector<float> values;
    int label = 0;
};

#ifdef MISTAKE
using Dataset = std::vector<Sample>;
#else
using Dataset = std::vector<std::pair<std::vector<float>, int>>;
#endif

double train(dptk::Trainer<dptk::nn::Network<dptk::nn::Reference<float>>>& trainer, const Dataset& dataset) {
    return trainer.train_epoch(dataset, 0).loss;
}
