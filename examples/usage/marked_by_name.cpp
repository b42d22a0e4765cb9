// A model whose parameters are in a std::map. Backward marks each gradient as it completes, so that buckets
// are sent while the rest of backward runs. The order of marks need not be that of the keys.
//   mpirun -np 2 marked_by_name
#include <dptk/ddp.hpp>

#include <cstdio>
#include <map>
#include <string>
#include <utility>
#include <vector>

using Parameter = std::pair<std::vector<float>, std::vector<float>>;  // a value and its gradient

int main() {
    dptk::ProcessGroup group = dptk::init_process_group();
    std::map<std::string, Parameter> net = {{"encoder.weight", {{1, 2}, {0, 0}}},
                                            {"decoder.weight", {{3, 4}, {0, 0}}},
                                            {"decoder.bias", {{5}, {0}}}};
    dptk::DistributedDataParallel ddp(group, net, {.ready = dptk::Ready::marked});

    // Backward of 0.5 * |values - rank|^2, from the last layer to the first.
    const auto backward = [&](const std::string& name) {
        auto& [value, gradient] = net.at(name);
        for (std::size_t i = 0; i < value.size(); ++i)
            gradient[i] = value[i] - static_cast<float>(group.rank());
        ddp.mark_ready(gradient);
    };
    for (int step = 0; step < 100; ++step) {
        ddp.begin_step();
        backward("decoder.bias");
        backward("decoder.weight");
        backward("encoder.weight");
        ddp.synchronize();
        for (auto& [name, parameter] : net)
            for (std::size_t i = 0; i < parameter.first.size(); ++i)
                parameter.first[i] -= 0.1F * parameter.second[i];
    }
    // All values have approached the mean of the ranks.
    if (group.rank() == 0)
        std::printf("%zu is the index of encoder.weight, whose first value is %.3f\n",
                    ddp.index_of("encoder.weight"), static_cast<double>(net.at("encoder.weight").first[0]));
}
