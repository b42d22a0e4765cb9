#include <dptk/ddp.hpp>

#include <cstddef>

struct Dataset {
#ifndef MISTAKE
    [[nodiscard]] std::size_t size() const { return 10; }
#endif
};

dptk::DistributedSampler sampler(const Dataset& dataset, const dptk::ProcessGroup& group) {
    return dptk::DistributedSampler(dataset, group);
}
