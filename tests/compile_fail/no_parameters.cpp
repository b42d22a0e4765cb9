#include <dptk/ddp.hpp>

#include <vector>

struct Model {
    std::vector<float> value, gradient;
#ifndef MISTAKE
    void for_each_parameter(auto& sink) { sink("only", value, gradient); }
#endif
};

void train(dptk::ProcessGroup& group, Model& model) {
    dptk::DistributedDataParallel ddp(group, model);
}
