#include <dptk/ddp.hpp>

#include <vector>

#ifdef MISTAKE
using Values = const std::vector<std::vector<float>>;
#else
using Values = std::vector<std::vector<float>>;
#endif

void train(dptk::ProcessGroup& group, Values& values, std::vector<std::vector<float>>& gradients) {
    dptk::DistributedDataParallel ddp(group, values, gradients);
}
