#include <dptk/ddp.hpp>

#include <vector>

void train(dptk::ProcessGroup& group, std::vector<std::vector<float>>& values) {
    std::vector<std::vector<float>> gradients = values;
#ifdef MISTAKE
    dptk::DistributedDataParallel ddp(group, values, std::vector<std::vector<float>>{{1}});
#else
    dptk::DistributedDataParallel ddp(group, values, gradients);
#endif
}
