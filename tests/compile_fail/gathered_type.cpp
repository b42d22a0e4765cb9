#include <dptk/ddp.hpp>

#include <vector>

void gather(dptk::ProcessGroup& group, const std::vector<float>& input) {
#ifdef MISTAKE
    std::vector<double> output(input.size());
#else
    std::vector<float> output(input.size());
#endif
    group.all_gather(input, output);
}
