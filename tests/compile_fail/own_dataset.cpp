#include <dptk/ddp.hpp>

#include <cstddef>

struct Dataset {
    [[nodiscard]] std::size_t size() const { return 10; }
#ifndef MISTAKE
    int operator[](std::size_t i) const { return static_cast<int>(i); }
#endif
};

dptk::DistributedSampler sampler(const Dataset& dataset, const dptk::ProcessGroup& group) {
    return dptk::DistributedSampler(dataset, group);
}
