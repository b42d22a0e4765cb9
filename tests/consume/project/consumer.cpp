#include <dptk/ddp.hpp>

#include <vector>

int main() {
    int wrong = 0;
    dptk::launch_threads(2, [&](dptk::ProcessGroup& group) {
        std::vector<std::vector<float>> values = {{1}}, gradients = {{static_cast<float>(group.rank())}};
        dptk::DistributedDataParallel ddp(group, values, gradients);
        ddp.synchronize();
        if (gradients[0][0] != 0.5F) wrong = 1;
    });
    return wrong;
}
